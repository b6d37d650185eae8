// A vector of floats of the target's width, by the compiler's vector extension.
#pragma once

#include "call.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#ifdef EPITOMIC_DEBUG
#include <stdio.h>
#include <stdlib.h>
#define CHECK(condition) \
  ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), abort()))
#else
#define CHECK(condition) ((void)0)
#endif

#ifndef EPITOMIC_LANES
#if defined(__AVX512F__)
#define EPITOMIC_LANES 16
#elif defined(__AVX2__)
#define EPITOMIC_LANES 8
#else
#define EPITOMIC_LANES 4
#endif
#endif

// Masked loads and stores of a part of a vector. Scalar loops took 45 % of a training step of the paper's layer 1,
// whose 12 channels are less than a vector of 16.
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__) && EPITOMIC_LANES == 16
#define MASKS
#elif defined(__AVX2__) && EPITOMIC_LANES == 8
#define LOAD_MASKS  // loads only: `store` halves the vector
#endif

#ifndef EPITOMIC_ROWS  // rows of a register tile of two vectors, as 16 or 32 registers hold
#if defined(__AVX512F__) || defined(__aarch64__)
#define EPITOMIC_ROWS 12
#else
#define EPITOMIC_ROWS 6
#endif
#endif

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define INLINE static inline __attribute__((always_inline))

namespace {

constexpr int64_t LANES = EPITOMIC_LANES;
constexpr int64_t PANEL = 2 * LANES;
constexpr int64_t ROWS = EPITOMIC_ROWS;
constexpr int64_t LINE = 16;  // floats in a cache line

typedef float Vec __attribute__((vector_size(4 * EPITOMIC_LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * EPITOMIC_LANES)));
typedef uint8_t Bytes __attribute__((vector_size(EPITOMIC_LANES)));
typedef float UnalignedVec __attribute__((vector_size(4 * EPITOMIC_LANES), aligned(4), may_alias));
typedef uint8_t UnalignedBytes __attribute__((vector_size(EPITOMIC_LANES), aligned(1), may_alias));

INLINE Vec load(const float* p) { return *(const UnalignedVec*)p; }
INLINE void store(float* p, Vec v) { *(UnalignedVec*)p = v; }
INLINE Vec broadcast(float f) { return f - Vec{}; }
INLINE Ints broadcast(int32_t i) { return i - Ints{}; }

#ifdef MASKS
INLINE __mmask16 first_lanes(int64_t count) {
  CHECK(count >= 0);
  return (__mmask16)(count >= LANES ? 0xffff : (1 << count) - 1);
}
#elif defined(LOAD_MASKS)
INLINE __m256i first_lanes(int64_t count) {
  static const int32_t ONES_THEN_ZEROS[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  CHECK(count >= 0 && count <= LANES);
  return _mm256_loadu_si256((const __m256i*)(ONES_THEN_ZEROS + LANES - count));
}
#endif

// Loads the first `count` lanes and zeros after them.
INLINE Vec load(const float* p, int64_t count) {
#ifdef MASKS
  return (Vec)_mm512_maskz_loadu_ps(first_lanes(count), p);
#elif defined(LOAD_MASKS)
  return count >= LANES ? load(p) : (Vec)_mm256_maskload_ps(p, first_lanes(count));
#else
  if (count >= LANES) return load(p);
  Vec v = {};
  for (int64_t i = 0; i < count; i++) v[i] = p[i];
  return v;
#endif
}

// Stores the first `count` lanes.
INLINE void store(float* p, Vec v, int64_t count) {
#ifdef MASKS
  _mm512_mask_storeu_ps(p, first_lanes(count), (__m512)v);
#elif defined(LOAD_MASKS)
  if (count >= LANES) return store(p, v);
  __m128 left = _mm256_castps256_ps128((__m256)v);  // the lanes still to store, the first one lowest
  if (count & 4) {
    _mm_storeu_ps(p, left);
    left = _mm256_extractf128_ps((__m256)v, 1);
    p += 4;
  }
  if (count & 2) {
    _mm_storel_pi((__m64*)p, left);
    left = _mm_movehl_ps(left, left);
    p += 2;
  }
  if (count & 1) _mm_store_ss(p, left);
#else
  if (count >= LANES) return store(p, v);
  for (int64_t i = 0; i < count; i++) p[i] = v[i];
#endif
}

// Compilers turn the generic conversions into scalar loops, so the usual targets have intrinsics.
INLINE Ints widen(const uint8_t* p) {
#if defined(__AVX2__) && EPITOMIC_LANES == 8
  return (Ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p));
#else
  return __builtin_convertvector(*(const UnalignedBytes*)p, Ints);
#endif
}

INLINE void narrow(uint8_t* p, Ints v) {
#if defined(__AVX2__) && EPITOMIC_LANES == 8
  __m128i words = _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  _mm_storel_epi64((__m128i*)p, _mm_packus_epi16(words, words));
#else
  *(UnalignedBytes*)p = __builtin_convertvector(v, Bytes);
#endif
}

INLINE Ints load_positions(const uint8_t* p, int64_t count) {
#ifdef MASKS
  return (Ints)_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first_lanes(count), p));
#else
  if (count >= LANES) return widen(p);
  Ints v = {};
  for (int64_t i = 0; i < count; i++) v[i] = p[i];
  return v;
#endif
}

INLINE void store_positions(uint8_t* p, Ints v, int64_t count) {
#ifdef MASKS
  _mm512_mask_cvtepi32_storeu_epi8(p, first_lanes(count), (__m512i)v);
#else
  if (count >= LANES) return narrow(p, v);
  for (int64_t i = 0; i < count; i++) p[i] = (uint8_t)v[i];
#endif
}

// `mask ? a : b` lane by lane, as bits: NaNs pass.
INLINE Vec select(Ints mask, Vec a, Vec b) { return mask ? a : b; }

// Transposes a 4 x 4 block: from[i * from_row + j] goes to to[j * to_row + i].
INLINE void transpose_block(const float* from, int64_t from_row, float* to, int64_t to_row) {
  typedef float Four __attribute__((vector_size(16)));
  typedef float UnalignedFour __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__clang__)
#define SHUFFLE(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
  typedef int32_t FourInts __attribute__((vector_size(16)));
#define SHUFFLE(x, y, ...) __builtin_shuffle(x, y, FourInts{__VA_ARGS__})
#endif
  Four a = *(const UnalignedFour*)from, b = *(const UnalignedFour*)(from + from_row);
  Four c = *(const UnalignedFour*)(from + 2 * from_row), d = *(const UnalignedFour*)(from + 3 * from_row);
  Four ab = SHUFFLE(a, b, 0, 4, 1, 5), cd = SHUFFLE(c, d, 0, 4, 1, 5);
  Four ab_high = SHUFFLE(a, b, 2, 6, 3, 7), cd_high = SHUFFLE(c, d, 2, 6, 3, 7);
  *(UnalignedFour*)to = SHUFFLE(ab, cd, 0, 1, 4, 5);
  *(UnalignedFour*)(to + to_row) = SHUFFLE(ab, cd, 2, 3, 6, 7);
  *(UnalignedFour*)(to + 2 * to_row) = SHUFFLE(ab_high, cd_high, 0, 1, 4, 5);
  *(UnalignedFour*)(to + 3 * to_row) = SHUFFLE(ab_high, cd_high, 2, 3, 6, 7);
#undef SHUFFLE
}

// to (columns, rows) = from (rows, columns) transposed. Blocks at the ends overlap their neighbours.
INLINE void transpose(const float* from, int64_t rows, int64_t from_row, int64_t columns, float* to, int64_t to_row) {
  if (rows < 4 || columns < 4) {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) to[j * to_row + i] = from[i * from_row + j];
    return;
  }
  for (int64_t i = 0; i < rows; i += 4) {
    i = i < rows - 4 ? i : rows - 4;
    for (int64_t j = 0; j < columns; j += 4) {
      j = j < columns - 4 ? j : columns - 4;
      transpose_block(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
    }
  }
}

INLINE int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

// Planes that are walked side by side lie an odd number of cache lines apart, so that they share no cache set.
INLINE int64_t spread(int64_t floats) {
  int64_t lines = round_up(floats, LINE) / LINE;
  return (lines | 1) * LINE;
}

}  // namespace
