// The interface between Python and the kernel: plain sizes and pointers. ops/library.py mirrors these structs.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define EPITOMIC_ABI 5

extern "C" {

// Patches of the input matched with weights; see ops/matching.py. Pairs are (height, width). The larger of patch and
// weights is the data of the filtering problem F(D, W), the smaller one its filter: V = max(P, S) and D = |P - S| + 1.
struct EpitomicProblem {
  int64_t n, h, w, c;             // input, (N, H, W, C) dense
  int64_t k;                      // outputs
  int64_t patch[2];               // P, size of the patches
  int64_t weight[2];              // S, size of the weights: (K, C, S, S) dense, or see weights_last
  int64_t stride[2];              // step of the patches
  int64_t before[2];              // the first patch begins so many rows and columns before the input; zeros surround it
  int64_t grid[2];                // patches of an image
  int64_t skipped[2];             // response r of patch i has the number i * stride + r - skipped ...
  int64_t responses[2];           // ... and counts if that is from 0 to responses - 1
  int64_t all;                    // whether to keep all responses, not the largest of each patch; then stride = D
  int64_t threads;                // threads that will run a pass; the results do not depend on it
  int64_t dx_planes;              // whether dx is (N, C, H, W), not (N, H, W, C)
  int64_t weights_last;           // whether weights and dweights are (K, S, S, C), not (K, C, S, S)
  float patch_map[2][64];         // (V, P) of each axis: G, or B^T where the patch is the data
  float weight_map[2][64];        // (V, S) of each axis: B^T, or G where the patch is the data
  float output_map[2][64];        // (V, D) of each axis: A
};

enum EpitomicPass {
  EPITOMIC_PACK = 0,              // weights -> u
  EPITOMIC_PACK_TRANSPOSED = 1,   // weights -> u_transposed
  EPITOMIC_FORWARD = 2,           // x, u, bias, gain, patch_mean -> y, positions
  EPITOMIC_AFFINE = 3,            // dy, y, positions, bias, gain -> dy_scaled, sums
  EPITOMIC_INPUT = 4,             // dy, positions, u_transposed, filter_mean -> dx
  EPITOMIC_WEIGHTS = 5,           // dy, positions, x, patch_mean -> du
  EPITOMIC_UNPACK = 6,            // du -> dweights
  EPITOMIC_PASSES = 7,
};

// What `epitomic_plan` chooses. U is made one group of panels at a time, so that it takes little memory.
struct EpitomicPlan {
  int64_t panel;                  // columns of a packed panel: two vectors
  int64_t block;                  // approximate number of patches in a block
  int64_t slices;                 // number of runs of patches that sum dU separately
  int64_t output_groups;          // number of groups of output panels, in u and du
  int64_t channel_groups;         // number of groups of channel panels, in u_transposed
  int64_t u;                      // floats of the largest group of U, and of each slice of its dU
  int64_t u_transposed;           // floats of the largest group of U packed for the gradient of the input
  int64_t workspace[EPITOMIC_PASSES];  // floats of workspace that a thread needs, by pass
  int64_t tasks[EPITOMIC_PASSES];      // number of tasks, by pass
};

// Tensors of a call. Those that EpitomicPass does not name for a pass may be null. K+ is K rounded up to whole panels.
struct EpitomicTensors {
  const float* x;                 // (N, H, W, C)
  const float* weights;           // (K, C, S, S), or (K, S, S, C) with weights_last
  const float* bias;              // (K+) or null
  const float* gain;              // (D*D, K+) or null
  const float* patch_mean;        // (patches) or null: subtracted from each patch
  const float* filter_mean;       // (D*D, K+) or null: mean of each filter, to centre the patches' gradient
  const float* dy;                // as y
  float* u;                       // (points, panels of the group, C, panel)
  float* u_transposed;            // (points, panels of the group, K, panel)
  float* y;                       // (patches, K), or with `all` (N, responses, responses, K)
  uint8_t* positions;             // (patches, K); none with `all`
  float* dy_scaled;               // (patches, K): dy times the winner's gain
  float* sums;                    // (tasks, 1 + D*D, K+): sums of dy, and of dy * (y - bias) by winner
  float* dx;                      // (N, H, W, C), or (N, C, H, W) with dx_planes
  float* du;                      // (slices, points, panels of the group, C, panel)
  float* dweights;                // as weights
  int64_t group;                  // the group that the pass works on
};

// One pass and its progress.
struct EpitomicRun {
  const char* target;
  const EpitomicProblem* problem;
  const EpitomicPlan* plan;
  const EpitomicTensors* tensors;
  float* workspace;               // workspace of all threads, aligned to 64 bytes
  int64_t floats;                 // floats of workspace per thread, a multiple of 16
  int64_t pass;
  int64_t threads, tasks;         // threads and tasks that have begun; both start at 0
};

int64_t epitomic_abi(void);                       // EPITOMIC_ABI; check it before anything else
int64_t epitomic_sizes(void);                     // sizes of the four structs, each in 16 bits
const char* epitomic_targets(void);               // targets in this library, best last, separated by spaces
int epitomic_supported(const char* target);       // whether this processor can run it

// `target` must be one of `epitomic_targets`.
void epitomic_plan(const char* target, const EpitomicProblem*, EpitomicPlan*);

// Runs tasks of the pass until none is left. Threads share one EpitomicRun, at most as many as it has workspaces.
void epitomic_run(EpitomicRun*);
}
