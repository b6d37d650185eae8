// Tests the library without Python: every pass of every target that this processor has, against scalar loops in double
// precision. `make test-arm` runs it for 64-bit ARM under qemu.
//
//     self_test            exit status 0 if all agree, 1 if not
//     self_test --wrong    the same with one wrong coefficient, to show that it would be noticed
#include "../../src/epitomic/native/call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <thread>
#include <vector>

#include "maps.h"

namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr int THREADS = 2;
constexpr double TOLERANCE = 2e-4;  // of the largest value; Winograd's matrices amplify rounding

struct Case {
  const char* name;
  int64_t n, h, w, c, k;
  int64_t patch[2], weight[2], stride[2], before[2], grid[2], skipped[2], responses[2];
  bool all, gain, planes, last;  // planes: dx_planes; last: weights_last
};

// The sizes are odd on purpose: no channel count is a multiple of a vector.
const Case CASES[] = {
    {"epitomic", 2, 9, 8, 5, 7, {3, 3}, {4, 4}, {2, 2}, {0, 0}, {4, 3}, {0, 0}, {8, 6}, false, false, false, false},
    {"epitomic, padded", 2, 8, 8, 3, 19, {5, 5}, {6, 6}, {2, 2}, {2, 2}, {4, 4}, {0, 0}, {8, 8}, false, false, true, true},
    {"epitomic, 6 x 6", 1, 14, 14, 17, 33, {6, 6}, {8, 8}, {3, 3}, {0, 0}, {3, 3}, {0, 0}, {9, 9}, false, false, false, true},
    {"epitomic, oblong", 3, 7, 9, 4, 6, {2, 3}, {3, 5}, {2, 3}, {0, 1}, {3, 3}, {0, 0}, {6, 9}, false, false, true, false},
    {"normalised", 2, 9, 9, 5, 21, {3, 3}, {4, 4}, {2, 2}, {0, 0}, {4, 4}, {0, 0}, {8, 8}, false, true, false, true},
    {"max-pooled", 2, 9, 9, 5, 7, {4, 4}, {3, 3}, {2, 2}, {1, 1}, {5, 5}, {0, 0}, {9, 9}, false, false, false, true},
    {"max-pooled, cut", 1, 8, 8, 18, 35, {5, 5}, {3, 3}, {2, 2}, {2, 2}, {5, 5}, {1, 1}, {8, 8}, false, false, true, false},
    {"convolution", 2, 8, 7, 5, 9, {6, 6}, {3, 3}, {4, 4}, {1, 1}, {2, 2}, {0, 0}, {8, 7}, true, false, false, true},
    {"many channels", 1, 12, 12, 70, 130, {3, 3}, {4, 4}, {2, 2}, {1, 1}, {6, 6}, {0, 0}, {12, 12}, false, false, false, false},
};

uint64_t state = 1;

float uniform() {  // from -1 to 1, the same on every machine
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (float)((double)(state >> 40) / (1 << 23) - 1);
}

Floats random_floats(int64_t count) {
  Floats values((size_t)count);
  for (float& value : values) value = uniform();
  return values;
}

float* aligned(Floats& memory, int64_t floats) {
  memory.assign((size_t)floats + 16, 0);
  return (float*)(((uintptr_t)memory.data() + 63) / 64 * 64);
}

// One problem, its data, and the results of the library and of the scalar loops.
class Test {
 public:
  Test(const Case& c, const std::string& target, bool wrong) : c_(c), target_(target) {
    memset(&p_, 0, sizeof p_);
    p_.n = c.n, p_.h = c.h, p_.w = c.w, p_.c = c.c, p_.k = c.k;
    for (int i = 0; i < 2; i++) {
      p_.patch[i] = c.patch[i], p_.weight[i] = c.weight[i], p_.stride[i] = c.stride[i], p_.before[i] = c.before[i];
      p_.grid[i] = c.grid[i], p_.skipped[i] = c.skipped[i], p_.responses[i] = c.responses[i];
      const Maps& maps = MAPS[c.patch[i]][c.weight[i]];
      memcpy(p_.output_map[i], maps.output, sizeof maps.output);
      memcpy(p_.patch_map[i], maps.patch, sizeof maps.patch);
      memcpy(p_.weight_map[i], maps.weight, sizeof maps.weight);
      shorter_[i] = c.patch[i] < c.weight[i] ? c.patch[i] : c.weight[i];
      window_[i] = llabs(c.patch[i] - c.weight[i]) + 1;
    }
    if (wrong) p_.output_map[1][0] *= 1.01f;
    p_.all = c.all, p_.threads = THREADS, p_.dx_planes = c.planes, p_.weights_last = c.last;
    epitomic_plan(target_.c_str(), &p_, &plan_);
    padded_ = (c.k + plan_.panel - 1) / plan_.panel * plan_.panel;
    patches_ = c.n * c.grid[0] * c.grid[1];
    outputs_ = (c.all ? c.n * c.responses[0] * c.responses[1] : patches_) * c.k;
    positions_count_ = window_[0] * window_[1];
    x_ = random_floats(c.n * c.h * c.w * c.c);
    weights_ = random_floats(c.k * c.c * c.weight[0] * c.weight[1]);
    bias_ = random_floats(c.k);
    gain_ = random_floats(positions_count_ * c.k);
    for (float& value : gain_) value = 1.5f + value;  // above zero, as a normalisation's
    dy_ = random_floats(outputs_);
  }

  bool passes() {
    prepare();
    library_forward();
    library_backward();
    scalar_forward();
    scalar_backward();
    bool good = close("y", y_, want_y_) & close("dx", dx_, want_dx_) & close("dweights", dweights_, want_dweights_);
    if (c_.gain) good &= close("sums", sums_, want_sums_);
    return good;
  }

 private:
  const Case& c_;
  std::string target_;
  EpitomicProblem p_;
  EpitomicPlan plan_;
  EpitomicTensors t_ = {};
  int64_t shorter_[2], window_[2], padded_, patches_, outputs_, positions_count_;
  Floats x_, weights_, bias_, gain_, dy_, y_, dx_, dweights_, sums_;
  Floats padded_bias_, padded_gain_, patch_mean_, filter_mean_, u_, transposed_, du_, scaled_, task_sums_;
  std::vector<uint8_t> positions_;
  Doubles want_y_, want_dx_, want_dweights_, want_sums_;

  double pixel(int64_t n, int64_t row, int64_t column, int64_t c) const {
    bool inside = row >= 0 && row < c_.h && column >= 0 && column < c_.w;
    return inside ? x_[(size_t)(((n * c_.h + row) * c_.w + column) * c_.c + c)] : 0;
  }

  double& dpixel(int64_t n, int64_t row, int64_t column, int64_t c) {
    static double outside;
    if (row < 0 || row >= c_.h || column < 0 || column >= c_.w) return outside;
    int64_t at = ((n * c_.h + row) * c_.w + column) * c_.c + c;
    if (c_.planes) at = ((n * c_.c + c) * c_.h + row) * c_.w + column;
    return want_dx_[(size_t)at];
  }

  size_t tap(int64_t k, int64_t c, int64_t row, int64_t column) const {
    if (c_.last) return (size_t)(((k * c_.weight[0] + row) * c_.weight[1] + column) * c_.c + c);
    return (size_t)(((k * c_.c + c) * c_.weight[0] + row) * c_.weight[1] + column);
  }

  // The terms of response (a, b) of one patch to output k: visit(row and column of the input, index of the weight, c).
  template <class Visit>
  void terms(int64_t i, int64_t j, int64_t k, int64_t a, int64_t b, Visit visit) const {
    int64_t top = i * c_.stride[0] - c_.before[0] + (c_.patch[0] > c_.weight[0] ? a : 0);
    int64_t left = j * c_.stride[1] - c_.before[1] + (c_.patch[1] > c_.weight[1] ? b : 0);
    int64_t down = c_.patch[0] > c_.weight[0] ? 0 : a, right = c_.patch[1] > c_.weight[1] ? 0 : b;
    for (int64_t c = 0; c < c_.c; c++)
      for (int64_t r = 0; r < shorter_[0]; r++)
        for (int64_t s = 0; s < shorter_[1]; s++) visit(top + r, left + s, tap(k, c, down + r, right + s), c);
  }

  template <class Visit>
  void each_output(Visit visit) const {
    for (int64_t n = 0, patch = 0; n < c_.n; n++)
      for (int64_t i = 0; i < c_.grid[0]; i++)
        for (int64_t j = 0; j < c_.grid[1]; j++, patch++)
          for (int64_t k = 0; k < c_.k; k++) visit(n, i, j, k, patch);
  }

  // Number of the response (a, b) of patch (i, j) in the plane of all responses, or -1 if it does not count.
  int64_t number(int64_t i, int64_t j, int64_t a, int64_t b) const {
    int64_t row = i * c_.stride[0] + a - c_.skipped[0], column = j * c_.stride[1] + b - c_.skipped[1];
    bool counts = row >= 0 && row < c_.responses[0] && column >= 0 && column < c_.responses[1];
    return counts ? row * c_.responses[1] + column : -1;
  }

  double mean_of_patch(int64_t patch) const { return c_.gain ? patch_mean_[(size_t)patch] : 0; }

  double gain(int64_t k, int64_t position) const { return c_.gain ? gain_[(size_t)(position * c_.k + k)] : 1; }

  double response(int64_t n, int64_t i, int64_t j, int64_t k, int64_t patch, int64_t position) const {
    double sum = 0, mean = mean_of_patch(patch);
    terms(i, j, k, position / window_[1], position % window_[1], [&](int64_t r, int64_t s, size_t w, int64_t c) {
      sum += (pixel(n, r, s, c) - mean) * weights_[w];
    });
    return gain(k, position) * sum;
  }

  void prepare() {
    padded_bias_.assign((size_t)padded_, 0);
    memcpy(padded_bias_.data(), bias_.data(), 4 * (size_t)c_.k);
    t_.x = x_.data(), t_.weights = weights_.data(), t_.bias = padded_bias_.data(), t_.dy = dy_.data();
    if (!c_.gain) return;
    padded_gain_.assign((size_t)(positions_count_ * padded_), 0);
    filter_mean_.assign(padded_gain_.size(), 0);
    double size = (double)(c_.patch[0] * c_.patch[1] * c_.c);
    for (int64_t position = 0; position < positions_count_; position++)
      for (int64_t k = 0; k < c_.k; k++) {
        double sum = 0;
        auto add = [&](int64_t, int64_t, size_t w, int64_t) { sum += weights_[w]; };
        terms(0, 0, k, position / window_[1], position % window_[1], add);
        filter_mean_[(size_t)(position * padded_ + k)] = (float)(sum / size);
        padded_gain_[(size_t)(position * padded_ + k)] = gain_[(size_t)(position * c_.k + k)];
      }
    patch_mean_.assign((size_t)patches_, 0);
    each_output([&](int64_t n, int64_t i, int64_t j, int64_t k, int64_t patch) {
      if (k) return;
      double sum = 0;
      terms(i, j, 0, 0, 0, [&](int64_t r, int64_t s, size_t, int64_t c) { sum += pixel(n, r, s, c); });
      patch_mean_[(size_t)patch] = (float)(sum / size);
    });
    t_.gain = padded_gain_.data(), t_.patch_mean = patch_mean_.data(), t_.filter_mean = filter_mean_.data();
  }

  void run(int64_t pass) {
    EpitomicRun run = {};
    Floats memory;
    run.target = target_.c_str(), run.problem = &p_, run.plan = &plan_, run.tensors = &t_;
    run.floats = (plan_.workspace[pass] + 15) / 16 * 16;
    run.workspace = aligned(memory, THREADS * run.floats), run.pass = pass;
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++) threads.emplace_back(epitomic_run, &run);
    for (std::thread& thread : threads) thread.join();
  }

  void library_forward() {
    y_.assign((size_t)outputs_, NAN);
    positions_.assign(c_.all ? 0 : (size_t)outputs_, 255);
    t_.y = y_.data(), t_.positions = positions_.data(), t_.u = aligned(u_, plan_.u);
    for (t_.group = 0; t_.group < plan_.output_groups; t_.group++) run(EPITOMIC_PACK), run(EPITOMIC_FORWARD);
  }

  void library_backward() {
    t_.group = 0;
    int64_t rows = 1 + positions_count_, tasks = plan_.tasks[EPITOMIC_AFFINE];
    if (c_.gain) {
      task_sums_.assign((size_t)(tasks * rows * padded_), NAN);
      scaled_.assign((size_t)outputs_, NAN);
      t_.sums = task_sums_.data(), t_.dy_scaled = scaled_.data();
      run(EPITOMIC_AFFINE);
      sums_.assign((size_t)(rows * c_.k), 0);
      for (int64_t task = 0; task < tasks; task++)
        for (int64_t row = 0; row < rows; row++)
          for (int64_t k = 0; k < c_.k; k++)
            sums_[(size_t)(row * c_.k + k)] += task_sums_[(size_t)((task * rows + row) * padded_ + k)];
      t_.dy = scaled_.data();
    }
    dweights_.assign(weights_.size(), NAN);
    dx_.assign(x_.size(), NAN);
    t_.du = aligned(du_, plan_.slices * plan_.u), t_.dweights = dweights_.data(), t_.dx = dx_.data();
    for (t_.group = 0; t_.group < plan_.output_groups; t_.group++) run(EPITOMIC_WEIGHTS), run(EPITOMIC_UNPACK);
    t_.u_transposed = aligned(transposed_, plan_.u_transposed);
    for (t_.group = 0; t_.group < plan_.channel_groups; t_.group++) run(EPITOMIC_PACK_TRANSPOSED), run(EPITOMIC_INPUT);
    t_.group = 0;
  }

  void scalar_forward() {
    want_y_.assign((size_t)outputs_, -INFINITY);
    int64_t plane = c_.responses[0] * c_.responses[1];
    each_output([&](int64_t n, int64_t i, int64_t j, int64_t k, int64_t patch) {
      for (int64_t position = 0; position < positions_count_; position++) {
        int64_t at = number(i, j, position / window_[1], position % window_[1]);
        if (at < 0) continue;
        double& best = want_y_[(size_t)((c_.all ? n * plane + at : patch) * c_.k + k)];
        double value = response(n, i, j, k, patch, position) + bias_[(size_t)k];
        best = value > best ? value : best;
      }
      if (c_.all) return;
      // The library's winner must be as good as the best, up to rounding; two may be nearly equal.
      int64_t at = patch * c_.k + k, winner = positions_[(size_t)at];
      bool counts = winner < positions_count_ && number(i, j, winner / window_[1], winner % window_[1]) >= 0;
      double value = counts ? response(n, i, j, k, patch, winner) + bias_[(size_t)k] : -INFINITY;
      if (!(want_y_[(size_t)at] - value < TOLERANCE * (1 + fabs(value)))) want_y_[(size_t)at] = NAN;
    });
  }

  void scalar_backward() {
    want_dx_.assign(x_.size(), 0);
    want_dweights_.assign(weights_.size(), 0);
    want_sums_.assign((size_t)((1 + positions_count_) * c_.k), 0);
    int64_t plane = c_.responses[0] * c_.responses[1];
    double size = (double)(c_.patch[0] * c_.patch[1] * c_.c);
    each_output([&](int64_t n, int64_t i, int64_t j, int64_t k, int64_t patch) {
      for (int64_t position = 0; position < positions_count_; position++) {
        int64_t a = position / window_[1], b = position % window_[1], at = number(i, j, a, b);
        if (at < 0 || (!c_.all && positions_[(size_t)(patch * c_.k + k)] != position)) continue;
        double dy = dy_[(size_t)((c_.all ? n * plane + at : patch) * c_.k + k)];
        want_sums_[(size_t)k] += dy;
        want_sums_[(size_t)((1 + position) * c_.k + k)] += dy * response(n, i, j, k, patch, position);
        dy *= gain(k, position);
        double mean = mean_of_patch(patch), centre = 0;
        if (c_.gain) terms(i, j, k, a, b, [&](int64_t, int64_t, size_t w, int64_t) { centre += weights_[w] / size; });
        terms(i, j, k, a, b, [&](int64_t r, int64_t s, size_t w, int64_t c) {
          want_dweights_[w] += dy * (pixel(n, r, s, c) - mean);
          dpixel(n, r, s, c) += dy * (weights_[w] - centre);
        });
      }
    });
  }

  bool close(const char* what, const Floats& got, const Doubles& want) const {
    double largest = 0, error = 0;
    for (double value : want) largest = fmax(largest, fabs(value));
    bool good = got.size() == want.size();
    for (size_t i = 0; good && i < got.size(); i++) {
      double difference = fabs(got[i] - want[i]);
      good = difference <= TOLERANCE * largest;  // false for NaN, too
      error = fmax(error, difference);
    }
    if (!good) printf("%s, %s: %s is wrong\n", target_.c_str(), c_.name, what);
    worst = fmax(worst, error / largest);
    return good;
  }

 public:
  static double worst;
};

double Test::worst = 0;

}  // namespace

int main(int argc, char** argv) {
  bool wrong = argc > 1 && !strcmp(argv[1], "--wrong");
  int64_t sizes = (int64_t)sizeof(EpitomicProblem) | (int64_t)sizeof(EpitomicPlan) << 16 |
                  (int64_t)sizeof(EpitomicTensors) << 32 | (int64_t)sizeof(EpitomicRun) << 48;
  if (epitomic_abi() != EPITOMIC_ABI || epitomic_sizes() != sizes) return printf("another interface\n"), 1;
  int failures = 0, count = 0;
  std::string targets = epitomic_targets(), ran;
  for (size_t start = 0, end; (end = targets.find(' ', start)) != std::string::npos; start = end + 1) {
    std::string target = targets.substr(start, end - start);
    if (!epitomic_supported(target.c_str())) continue;
    ran += " " + target;
    for (const Case& c : CASES) failures += !Test(c, target, wrong).passes(), count++;
  }
  printf("targets%s: %d of %d cases agree; largest relative error %.1e\n", ran.c_str(), count - failures, count,
         Test::worst);
  return failures || !count;
}
