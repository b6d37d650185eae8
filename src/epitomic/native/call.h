// What crosses the border between Python and the kernel: plain sizes and pointers. ops/library.py mirrors these structs.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define EPITOMIC_ABI 3

extern "C" {

// Mini-epitome matching with stride 1 inside the epitome; see ops/matching.py. Pairs are (height, width).
struct EpitomicProblem {
  int64_t n, h, w, c;             // input, (N, H, W, C) dense
  int64_t k;                      // epitomes, (K, C, V, V) dense
  int64_t kernel[2];              // W
  int64_t pool[2];                // D; V = W + D - 1 <= 8
  int64_t stride[2];
  int64_t threads;                // how many will run a pass; no result depends on it
  int64_t dx_planes;              // dx is (N, C, H, W), not (N, H, W, C)
  float patch[2][64];             // G   (V, W) of each axis
  float output[2][64];            // A   (V, D) of each axis
  float epitome[2][64];           // B^T (V, V) of each axis
};

enum EpitomicPass {
  EPITOMIC_PACK = 0,              // epitomes -> u
  EPITOMIC_PACK_TRANSPOSED = 1,   // epitomes -> u_transposed
  EPITOMIC_FORWARD = 2,           // x, u, bias, gain, patch_mean -> y, positions
  EPITOMIC_AFFINE = 3,            // dy, y, positions, bias, gain -> dy_scaled, sums
  EPITOMIC_INPUT = 4,             // dy, positions, u_transposed, filter_mean -> dx
  EPITOMIC_EPITOMES = 5,          // dy, positions, x, patch_mean -> du
  EPITOMIC_UNPACK = 6,            // du -> depitomes
  EPITOMIC_HASH = 7,              // epitomes -> hashes
  EPITOMIC_PASSES = 8,
};

// What `epitomic_plan` chooses. U comes in groups of panels, one after another, so that it takes little memory.
struct EpitomicPlan {
  int64_t panel;                  // columns of a packed panel: two vectors
  int64_t block;                  // patches of a block, about
  int64_t slices;                 // dU is summed over this many runs of patches, one after another
  int64_t epitome_groups;         // groups of panels of epitomes: of u and du
  int64_t channel_groups;         // groups of panels of channels: of u_transposed
  int64_t u;                      // floats of the largest group of U, and of each slice of its dU
  int64_t u_transposed;           // floats of the largest group of U packed for the gradient of the input
  int64_t workspace[EPITOMIC_PASSES];  // floats of workspace a thread needs, for each pass
  int64_t tasks[EPITOMIC_PASSES];      // units of work of each pass
};

// Tensors of a call; those that its passes do not name may be null. K+ is K rounded up to whole panels.
struct EpitomicTensors {
  const float* x;                 // (N, H, W, C)
  const float* epitomes;          // (K, C, V, V)
  const float* bias;              // (K+) or null
  const float* gain;              // (D*D, K+) or null
  const float* patch_mean;        // (patches) or null: subtracted from each patch
  const float* filter_mean;       // (D*D, K+) or null: mean of each filter, to centre the patches' gradient
  const float* dy;                // (patches, K)
  float* u;                       // (points, panels of the group, C, panel)
  float* u_transposed;            // (points, panels of the group, K, panel)
  float* y;                       // (patches, K)
  uint8_t* positions;             // (patches, K)
  float* dy_scaled;               // (patches, K): dy times the winner's gain
  float* sums;                    // (tasks, 1 + D*D, K+): sums of dy, and of dy * (y - bias) by winner
  float* dx;                      // (N, H, W, C), or (N, C, H, W) with dx_planes
  float* du;                      // (slices, points, panels of the group, C, panel)
  float* depitomes;               // (K, C, V, V)
  uint64_t* hashes;               // (tasks)
  int64_t group;                  // which one the pass works on, if its tensors come in groups
};

// One pass, and how far it is.
struct EpitomicRun {
  const char* target;
  const EpitomicProblem* problem;
  const EpitomicPlan* plan;
  const EpitomicTensors* tensors;
  float* workspace;               // of all threads, 64-byte aligned
  int64_t floats;                 // of it for each thread: a multiple of 16
  int64_t pass;
  int64_t threads, tasks;         // that have begun: 0 at first
};

int64_t epitomic_abi(void);                       // EPITOMIC_ABI, to be checked before anything else
int64_t epitomic_sizes(void);                     // sizes of the four structs, each in 16 bits
const char* epitomic_targets(void);               // those in this library, best last, separated by spaces
int epitomic_supported(const char* target);       // whether this processor runs it

// The target must be there.
void epitomic_plan(const char* target, const EpitomicProblem*, EpitomicPlan*);

// Does tasks of the pass until none is left: as many threads call it, with one EpitomicRun, as it has workspaces.
void epitomic_run(EpitomicRun*);
}
