// The one-dimensional maps of F(D, W) along an axis of vectors, unrolled for every size.
//
// The V points of ops/transforms.py come as zero (when V is even), pairs -t, t, and infinity. G (V, W) and A (V, D)
// evaluate polynomials there: a pair shares its even and odd halves, zero takes the first coefficient alone and
// infinity the last. B^T (V, V), the map of the data, interpolates: each row holds the coefficients of the polynomial
// that vanishes at all other points. There a pair shares its halves, too, and the rows of zero and infinity are half
// empty.
#pragma once

#include "vec.h"

namespace {

// Which coefficients of a row are not zero.
template <int V, int P, bool DATA>
struct Coefficients {
  static_assert(!DATA || P == V, "the data has as many values as there are points");
  static constexpr bool HAS_ZERO = V % 2 == 0;            // whether the first point is zero
  static constexpr int ZERO_END = DATA ? V - 1 : 1;       // of zero: 0, 2, ... below this
  static constexpr int EVEN = DATA && HAS_ZERO ? 2 : 0;   // of a pair: EVEN, EVEN + 2, ... and 1, 3, ... below PAIR_END
  static constexpr int PAIR_END = DATA ? V - 1 : P;
  static constexpr int INFINITE = DATA ? (V - 1) % 2 : P - 1;  // of infinity: INFINITE, INFINITE + 2, ...
};

// From P values to V points. An index beyond the values is never used, but the compiler looks at it.
template <int V, int P, bool DATA>
INLINE void evaluate(const float* m, const Vec (&x)[P], Vec (&out)[V]) {
  using Of = Coefficients<V, P, DATA>;
  if (Of::HAS_ZERO) {
    out[0] = m[0] * x[0];
    UNROLL for (int j = 2; j < Of::ZERO_END; j += 2) out[0] += m[j] * x[j];
  }
  UNROLL for (int r = Of::HAS_ZERO; r + 1 < V - 1; r += 2) {
    const float* t = m + (r + 1) * P;
    constexpr int EVEN = Of::EVEN < P ? Of::EVEN : 0;
    Vec even = t[EVEN] * x[EVEN], odd = {};
    UNROLL for (int j = EVEN + 2; j < Of::PAIR_END; j += 2) even += t[j] * x[j];
    if (Of::PAIR_END > 1) odd = t[1] * x[P > 1];
    UNROLL for (int j = 3; j < Of::PAIR_END; j += 2) odd += t[j] * x[j];
    out[r] = even - odd;
    out[r + 1] = even + odd;
  }
  const float* last = m + (V - 1) * P;
  out[V - 1] = last[Of::INFINITE] * x[Of::INFINITE];
  UNROLL for (int j = Of::INFINITE + 2; j < P; j += 2) out[V - 1] += last[j] * x[j];
}

// The transpose of `evaluate`: from V points to P values.
template <int V, int P, bool DATA>
INLINE void gather(const float* m, const Vec (&x)[V], Vec (&out)[P]) {
  using Of = Coefficients<V, P, DATA>;
  UNROLL for (int j = 0; j < P; j++) out[j] = Vec{};
  UNROLL for (int r = Of::HAS_ZERO; r + 1 < V - 1; r += 2) {
    const float* t = m + (r + 1) * P;
    Vec sum = x[r + 1] + x[r], difference = x[r + 1] - x[r];
    UNROLL for (int j = Of::EVEN; j < Of::PAIR_END; j += 2) out[j] += t[j] * sum;
    UNROLL for (int j = 1; j < Of::PAIR_END; j += 2) out[j] += t[j] * difference;
  }
  if (Of::HAS_ZERO)
    UNROLL for (int j = 0; j < Of::ZERO_END; j += 2) out[j] += m[j] * x[0];
  UNROLL for (int j = Of::INFINITE; j < P; j += 2) out[j] += m[(V - 1) * P + j] * x[V - 1];
}

// Apply a map to `vectors` neighbouring vectors. What it reads is `in_tap` floats apart, what it writes `out_tap`.
template <int V, int P, bool DATA>
void evaluate_all(const float* m, const float* in, int64_t in_tap, float* out, int64_t out_tap, int64_t vectors) {
  for (int64_t v = 0; v < vectors; v++, in += LANES, out += LANES) {
    Vec x[P], points[V];
    UNROLL for (int j = 0; j < P; j++) x[j] = load(in + j * in_tap);
    evaluate<V, P, DATA>(m, x, points);
    UNROLL for (int i = 0; i < V; i++) store(out + i * out_tap, points[i]);
  }
}

template <int V, int P, bool DATA>
void gather_all(const float* m, const float* in, int64_t in_tap, float* out, int64_t out_tap, int64_t vectors) {
  for (int64_t v = 0; v < vectors; v++, in += LANES, out += LANES) {
    Vec points[V], x[P];
    UNROLL for (int i = 0; i < V; i++) points[i] = load(in + i * in_tap);
    gather<V, P, DATA>(m, points, x);
    UNROLL for (int j = 0; j < P; j++) store(out + j * out_tap, x[j]);
  }
}

typedef void (*MapAll)(const float* m, const float* in, int64_t in_tap, float* out, int64_t out_tap, int64_t vectors);

// A table of functions for every map: [V][P], or [V][0] for the map of the data.
#define MAPS_4(F, V) F<V, V, true>, F<V, 1, false>, F<V, 2, false>, F<V, 3, false>, F<V, 4, false>
#define TABLE_OF_MAPS(F)                                                                                         \
  {                                                                                                              \
    {}, {F<1, 1, true>, F<1, 1, false>}, {F<2, 2, true>, F<2, 1, false>, F<2, 2, false>},                        \
        {F<3, 3, true>, F<3, 1, false>, F<3, 2, false>, F<3, 3, false>}, {MAPS_4(F, 4)},                         \
        {MAPS_4(F, 5), F<5, 5, false>}, {MAPS_4(F, 6), F<6, 5, false>, F<6, 6, false>},                          \
        {MAPS_4(F, 7), F<7, 5, false>, F<7, 6, false>, F<7, 7, false>},                                          \
        {MAPS_4(F, 8), F<8, 5, false>, F<8, 6, false>, F<8, 7, false>, F<8, 8, false>},                          \
  }

const MapAll EVALUATE_ALL[9][9] = TABLE_OF_MAPS(evaluate_all);
const MapAll GATHER_ALL[9][9] = TABLE_OF_MAPS(gather_all);

// A table of functions for every number of points V and window D: [V][D].
#define SIZES_4(F, V) nullptr, F<V, 1>, F<V, 2>, F<V, 3>, F<V, 4>
#define TABLE_OF_WINDOWS(F)                                                                                     \
  {                                                                                                             \
    {}, {nullptr, F<1, 1>}, {nullptr, F<2, 1>, F<2, 2>}, {nullptr, F<3, 1>, F<3, 2>, F<3, 3>}, {SIZES_4(F, 4)}, \
        {SIZES_4(F, 5), F<5, 5>}, {SIZES_4(F, 6), F<6, 5>, F<6, 6>}, {SIZES_4(F, 7), F<7, 5>, F<7, 6>, F<7, 7>}, \
        {SIZES_4(F, 8), F<8, 5>, F<8, 6>, F<8, 7>, F<8, 8>},                                                    \
  }

}  // namespace
