// The kernel for one target. It is compiled once per target, with its flags and EPITOMIC_TARGET; dispatch.cpp chooses
// one. No header of the C++ library is included, so that no code for one target can end up in another.
#include "backward.h"
#include "forward.h"
#include "pack.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace {

constexpr int64_t BLOCK = 96;                        // patches of a block: U is read once per block
constexpr int64_t LEFT_BYTES = 560 * 1024;           // a row of points of a block; larger ones make blocks smaller
constexpr int64_t GROUP_BYTES = 9 * 1024 * 1024;     // a group of U: it fits the last-level cache with all else
constexpr int64_t SLICED_BYTES = 4 * 1024 * 1024;    // all slices of dU together
constexpr int64_t MAX_SLICES = 4;

INLINE int64_t groups_of(int64_t panels, int64_t floats_of_panel) {
  return min(panels, (4 * panels * floats_of_panel + GROUP_BYTES - 1) / GROUP_BYTES);
}

INLINE void plan_sizes(const EpitomicProblem& p, EpitomicPlan& plan) {
  Geometry g(p);
  plan.panel = PANEL;
  int64_t block = LEFT_BYTES / (4 * g.vw * max(g.c, g.k)) / ROWS * ROWS;
  plan.block = min(max(BLOCK / 2, min(BLOCK, block)), g.patches);
  int64_t output_panel = g.points * g.c * PANEL, channel_panel = g.points * g.k * PANEL;  // floats
  plan.output_groups = groups_of(g.k_panels, output_panel);
  plan.channel_groups = groups_of(g.c_panels, channel_panel);
  int64_t output_panels = (g.k_panels + plan.output_groups - 1) / plan.output_groups;
  int64_t channel_panels = (g.c_panels + plan.channel_groups - 1) / plan.channel_groups;
  plan.u = output_panels * output_panel;
  plan.u_transposed = channel_panels * channel_panel;
  plan.slices = max(1, min(min(SLICED_BYTES / (4 * plan.u), MAX_SLICES), g.patches / (4 * plan.block)));

  ForwardTasks forward(p, g, plan);
  InputTasks input(p, g, plan);
  WeightTasks weights(p, g, plan);
  int64_t* floats = plan.workspace;
  floats[EPITOMIC_PACK] = floats[EPITOMIC_PACK_TRANSPOSED] = floats[EPITOMIC_UNPACK] = 0;
  floats[EPITOMIC_AFFINE] = 0;
  floats[EPITOMIC_FORWARD] = forward.products(g, output_panels).floats;
  floats[EPITOMIC_INPUT] = input.floats(p, g, channel_panels);
  floats[EPITOMIC_WEIGHTS] = weights.floats;

  plan.tasks[EPITOMIC_PACK] = plan.tasks[EPITOMIC_UNPACK] = pack_tasks(output_panels, g.c);
  plan.tasks[EPITOMIC_PACK_TRANSPOSED] = pack_tasks(channel_panels, g.k);
  plan.tasks[EPITOMIC_FORWARD] = forward.count;
  plan.tasks[EPITOMIC_AFFINE] = AFFINE_TASKS;
  plan.tasks[EPITOMIC_INPUT] = input.image_groups * input.channel_parts;
  plan.tasks[EPITOMIC_WEIGHTS] = weights.output_parts * weights.channel_parts * g.vh * plan.slices;
}

INLINE void run_task(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan, const EpitomicTensors& t,
                     int pass, int64_t task, float* workspace) {
  WeightSteps step(p, g);
  switch (pass) {
    case EPITOMIC_PACK: {
      Block group = part(g.k_panels, plan.output_groups, t.group, 1);
      return pack(p, g, t.weights, g.k, step.output, g.c, step.channel, step.tap, group, t.u, task);
    }
    case EPITOMIC_PACK_TRANSPOSED: {
      Block group = part(g.c_panels, plan.channel_groups, t.group, 1);
      return pack(p, g, t.weights, g.c, step.channel, g.k, step.output, step.tap, group, t.u_transposed, task);
    }
    case EPITOMIC_FORWARD:
      return forward(p, g, plan, t, task, workspace);
    case EPITOMIC_AFFINE:
      return backward_affine(g, t, task);
    case EPITOMIC_INPUT:
      return backward_input(p, g, plan, t, task, workspace);
    case EPITOMIC_WEIGHTS:
      return backward_weights(p, g, plan, t, task, workspace);
    case EPITOMIC_UNPACK:
      return unpack(p, g, plan, part(g.k_panels, plan.output_groups, t.group, 1), t.du, t.dweights, task);
  }
}

}  // namespace

// The names of these two functions carry the target.
extern "C" void JOIN(epitomic_plan_, EPITOMIC_TARGET)(const EpitomicProblem* p, EpitomicPlan* plan) {
  plan_sizes(*p, *plan);
}

extern "C" void JOIN(epitomic_run_, EPITOMIC_TARGET)(const EpitomicProblem* p, const EpitomicPlan* plan,
                                                     const EpitomicTensors* t, int pass, int64_t* next,
                                                     float* workspace) {
  Geometry g(*p);
  CHECK(pass >= 0 && pass < EPITOMIC_PASSES && (uintptr_t)workspace % 64 == 0);
  for (;;) {
    int64_t task = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
    if (task >= plan->tasks[pass]) return;
    run_task(*p, g, *plan, *t, pass, task, workspace);
  }
}
