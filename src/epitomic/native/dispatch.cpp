// The library's interface (call.h) and the choice of target. The build lists its targets in EPITOMIC_TARGETS, such as
// X(baseline) X(avx2).
#include "call.h"

#include <string.h>

#define DECLARE(target)                                                                                              \
  extern "C" void epitomic_plan_##target(const EpitomicProblem*, EpitomicPlan*);                                      \
  extern "C" void epitomic_run_##target(const EpitomicProblem*, const EpitomicPlan*, const EpitomicTensors*, int pass, \
                                        int64_t* next, float* workspace);
#define X DECLARE
EPITOMIC_TARGETS
#undef X

namespace {

struct Target {
  const char* name;
  void (*plan)(const EpitomicProblem*, EpitomicPlan*);
  void (*run)(const EpitomicProblem*, const EpitomicPlan*, const EpitomicTensors*, int, int64_t*, float*);
};

const Target TARGETS[] = {
#define X(target) {#target, epitomic_plan_##target, epitomic_run_##target},
    EPITOMIC_TARGETS
#undef X
};

const Target* find(const char* name) {
  for (const Target& target : TARGETS)
    if (!strcmp(target.name, name)) return &target;
  return nullptr;
}

}  // namespace

extern "C" {

int64_t epitomic_abi(void) { return EPITOMIC_ABI; }

int64_t epitomic_sizes(void) {
  return (int64_t)sizeof(EpitomicProblem) | (int64_t)sizeof(EpitomicPlan) << 16 |
         (int64_t)sizeof(EpitomicTensors) << 32 | (int64_t)sizeof(EpitomicRun) << 48;
}

const char* epitomic_targets(void) {
#define X(target) #target " "
  return EPITOMIC_TARGETS;
#undef X
}

int epitomic_supported(const char* name) {
  if (!find(name)) return 0;
#if defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
  if (!strcmp(name, "avx2")) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!strcmp(name, "avx512"))
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
#endif
  return 1;
}

void epitomic_plan(const char* name, const EpitomicProblem* problem, EpitomicPlan* plan) {
  find(name)->plan(problem, plan);
}

void epitomic_run(EpitomicRun* run) {
  int64_t thread = __atomic_fetch_add(&run->threads, 1, __ATOMIC_RELAXED);
  find(run->target)->run(run->problem, run->plan, run->tensors, (int)run->pass, &run->tasks,
                         run->workspace + thread * run->floats);
}
}
