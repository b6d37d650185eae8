// Gradients: of the input (dM U^T, then G^T and fold), of the epitomes (X^T dM), of bias and gain (sums of dy).
#pragma once

#include "products.h"

namespace {

// ---- dx

struct InputTasks {
  int64_t images, image_groups;      // images of a group: no two groups write to the same pixel
  int64_t channel_parts;             // of a group: only where there are fewer images than threads
  int64_t block;                     // patches at a time

  InputTasks(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan) {
    int64_t patches = g.oh * g.ow;
    images = most(1, (plan.block + patches / 2) / patches);
    image_groups = (p.n + images - 1) / images;
    images = (p.n + image_groups - 1) / image_groups;
    int64_t panels = g.c_panels / plan.channel_groups;
    channel_parts = most(1, least(panels, (p.threads + image_groups - 1) / image_groups));
    int64_t blocks = images > 1 ? 1 : (patches + plan.block - 1) / plan.block;
    block = least(up((images * patches + blocks - 1) / blocks, ROWS), images * patches);
  }

  Products products(const Geometry& g, int64_t panels) const { return Products(g, block, g.k, panels, g.ww); }

  int64_t floats(const EpitomicProblem& p, const Geometry& g, int64_t panels) const {
    return products(g, panels).floats + (p.dx_planes ? images * p.h * p.w * panels * PANEL : 0);
  }
};

// Mean over a patch's gradient: sum_k dy[k] * mean of the winning filter.
INLINE float gradient_mean(const Geometry& g, const EpitomicTensors& t, int64_t patch) {
  Vec sum = {};
  for (int64_t k = 0; k < g.k; k += LANES) {
    Ints position = load_positions(t.positions + patch * g.k + k, g.k - k);
    const float* means = t.filter_mean + k;
    Vec mean = load(means);
    for (int64_t i = 1; i < g.window; i++)
      mean = select(position == (int32_t)i, load(means + i * g.k_panels * PANEL), mean);
    sum += load(t.dy + patch * g.k + k, g.k - k) * mean;
  }
  float total = 0;
  for (int64_t i = 0; i < LANES; i++) total += sum[i];
  return total;
}

// Where a task adds up the gradients of its patches: its images, its channels.
struct Canvas {
  float* data;
  int64_t pixel, row;  // floats from one to the next
  int64_t channels;

  void clear(int64_t pixels) const {
    if (channels == pixel) {
      __builtin_memset(data, 0, (size_t)(pixels * pixel) * sizeof(float));
      return;
    }
    for (int64_t i = 0; i < pixels; i++) __builtin_memset(data + i * pixel, 0, (size_t)channels * sizeof(float));
  }
};

// G^T along the height, then added to where the patches were read from.
template <int V, int W>
void fold_block(const EpitomicProblem& p, const Geometry& g, const Canvas& canvas, int64_t rows, const int64_t* offsets,
                const float* means, const float* z, int64_t plane) {
  for (int64_t b = 0; b < rows; b++) {
    for (int64_t c = 0; c < canvas.channels; c += LANES) {
      const float* from = z + (c / PANEL * rows + b) * PANEL + c % PANEL;
      for (int64_t j = 0; j < g.ww; j++) {
        Vec points[V], column[W];
        UNROLL for (int i = 0; i < V; i++) points[i] = load(from + (i * g.ww + j) * plane);
        gather<V, W>(p.patch[0], points, column);
        float* to = canvas.data + (offsets[b] + j) * canvas.pixel + c;
        int64_t there = canvas.channels - c;
        UNROLL for (int i = 0; i < W; i++) {
          float* at = to + i * canvas.row;
          store(at, load(at, there) + (column[i] - means[b]), there);
        }
      }
    }
  }
}

typedef void (*FoldBlock)(const EpitomicProblem&, const Geometry&, const Canvas&, int64_t rows, const int64_t* offsets,
                          const float* means, const float* z, int64_t plane);
const FoldBlock FOLD_BLOCK[9][9] = TABLE_OF_SIZES(fold_block);

// Task: some images, some channels. Planes of channels are added up pixel by pixel in the workspace first.
INLINE void backward_input(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan,
                           const EpitomicTensors& t, int64_t task, float* workspace) {
  InputTasks tasks(p, g, plan);
  Block images = part(p.n, tasks.image_groups, task / tasks.channel_parts, 1);
  Block group = part(g.c_panels, plan.channel_groups, t.group, 1);
  Block panels = part(group.count, tasks.channel_parts, task % tasks.channel_parts, 1);
  CHECK(panels.count > 0 && images.count > 0 && images.count <= tasks.images);
  Products products = tasks.products(g, panels.count);
  int64_t channel = (group.first + panels.first) * PANEL, channels = least(panels.count * PANEL, g.c - channel);
  int64_t pixels = p.h * p.w, patches = g.oh * g.ow;
  Canvas canvas = {t.dx + images.first * pixels * g.c + channel, g.c, g.row, channels};
  if (p.dx_planes) {
    int64_t whole = panels.count * PANEL;
    canvas = {workspace + products.floats, whole, p.w * whole, whole};
  }
  canvas.clear(images.count * pixels);
  int64_t* offsets = (int64_t*)(workspace + products.offsets_at);
  float* means = workspace + products.means_at;
  for (int64_t at = 0; at < images.count * patches; at += tasks.block) {
    Block block = {images.first * patches + at, least(tasks.block, images.count * patches - at)};
    locate(p, g, {at, block.count}, offsets);
    for (int64_t b = 0; b < block.count; b++) means[b] = t.filter_mean ? gradient_mean(g, t, block.first + b) : 0;
    for (int64_t vh = 0; vh < g.vh; vh++) {
      GRADIENT_ROW[g.vw][g.dw](p, g, t.dy, t.positions, block, {0, g.k_panels}, vh, products.left_factor(workspace));
      products.row(g, t.u_transposed, group.count, panels.first, channels, p.patch[1], vh, block.count, workspace);
    }
    FOLD_BLOCK[g.vh][g.wh](p, g, canvas, block.count, offsets, means, workspace + products.partial_at,
                           products.partial);
  }
  if (!p.dx_planes) return;
  for (int64_t n = 0; n < images.count; n++)
    for (int64_t c = 0; c < channels; c += LINE)  // a cache line of each pixel
      transpose(canvas.data + n * pixels * canvas.pixel + c, pixels, canvas.pixel, least(LINE, channels - c),
                t.dx + ((images.first + n) * g.c + channel + c) * pixels, pixels);
}

// ---- dU

struct EpitomeTasks {
  int64_t epitome_parts, channel_parts;                 // of a group: one of them is 1
  int64_t panels, channels;                             // of the largest part
  int64_t stride, left, right;                          // row of X; planes of X and of dM
  int64_t offsets_at, left_at, right_at, floats;

  EpitomeTasks(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan) {
    int64_t wanted = (4 * p.threads + g.vh * plan.slices - 1) / (g.vh * plan.slices);  // four tasks a thread
    int64_t most_panels = (g.k_panels + plan.epitome_groups - 1) / plan.epitome_groups;
    // Parts of the channels make dM again, parts of the epitomes X: the longer one is parted.
    bool by_channels = g.c > most_panels * PANEL;
    epitome_parts = by_channels ? 1 : most(1, least(wanted, g.k_panels / plan.epitome_groups / 4));
    channel_parts = by_channels ? most(1, least(wanted, g.c_panels / 4)) : 1;
    panels = (most_panels + epitome_parts - 1) / epitome_parts;
    channels = least((g.c_panels + channel_parts - 1) / channel_parts * PANEL, g.c);
    stride = Products::row_stride(channels);
    left = spread(plan.block * stride);
    right = spread(panels * plan.block * PANEL);
    offsets_at = 0;
    left_at = offsets_at + up(2 * plan.block, LINE);
    right_at = left_at + g.vw * left;
    floats = right_at + g.vw * right;
  }
};

// Task: a row of points, a slice of the patches, some epitomes or some channels. All its dU stays near while the
// patches pass by.
INLINE void backward_epitomes(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan,
                              const EpitomicTensors& t, int64_t task, float* workspace) {
  EpitomeTasks tasks(p, g, plan);
  Block group = part(g.k_panels, plan.epitome_groups, t.group, 1);
  int64_t parts = tasks.epitome_parts * tasks.channel_parts;
  Block panels = part(group.count, tasks.epitome_parts, task % tasks.epitome_parts, 1);
  Block channels = part(g.c, tasks.channel_parts, task % tasks.channel_parts, PANEL);
  int64_t columns = g.k - (group.first + panels.first) * PANEL;
  int64_t vh = task / parts % g.vh, slice = task / parts / g.vh;
  Block patches = part(g.patches, plan.slices, slice, 1);
  CHECK(panels.count <= tasks.panels && channels.count <= tasks.channels && patches.count > 0);
  int64_t* offsets = (int64_t*)(workspace + tasks.offsets_at);
  Factor left = {workspace + tasks.left_at, tasks.left, tasks.stride, PANEL};
  int64_t blocks = (patches.count + plan.block - 1) / plan.block;
  for (int64_t i = 0; i < blocks; i++) {
    Block block = part(patches.count, blocks, i, 1);
    block.first += patches.first;
    Factor right = {workspace + tasks.right_at, tasks.right, PANEL, block.count * PANEL};
    locate(p, g, block, offsets);
    patch_row(p, g, t, block, offsets, channels, vh, left);
    GRADIENT_ROW[g.vw][g.dw](p, g, t.dy, t.positions, block, {group.first + panels.first, panels.count}, vh, right);
    for (int64_t vw = 0; vw < g.vw; vw++) {
      int64_t point = slice * g.points + vh * g.vw + vw;
      float* du = t.du + ((point * group.count + panels.first) * g.c + channels.first) * PANEL;
      multiply_transposed(left.data + vw * left.plane, left.row, channels.count, block.count,
                          right.data + vw * right.plane, panels.count, columns, du, g.c * PANEL, i > 0);
    }
  }
}

// ---- dbias, dgain, and dy times gain

constexpr int64_t AFFINE_TASKS = 16;

// Task: a run of patches, of which the sums go to a plane of their own.
INLINE void backward_affine(const Geometry& g, const EpitomicTensors& t, int64_t task) {
  int64_t padded = g.k_panels * PANEL;
  float* sums = t.sums + task * (1 + g.window) * padded;
  for (int64_t i = 0; i < (1 + g.window) * padded; i++) sums[i] = 0;
  Block run = part(g.patches, AFFINE_TASKS, task, 1);
  for (int64_t start = run.first; start < run.first + run.count; start += 64) {  // near enough to stay in cache
    int64_t end = least(start + 64, run.first + run.count);
    for (int64_t k = 0; k < g.k; k += LANES) {
      Vec bias = t.bias ? load(t.bias + k) : Vec{}, total = {}, by_winner[64] = {};
      for (int64_t b = start; b < end; b++) {
        int64_t at = b * g.k + k, there = g.k - k;
        Vec d = load(t.dy + at, there), gain = load(t.gain + k);
        Vec scaled = d * (load(t.y + at, there) - bias);
        Ints position = load_positions(t.positions + at, there);
        total += d;
        by_winner[0] += select(position == 0, scaled, Vec{});
        for (int64_t i = 1; i < g.window; i++) {
          Ints here = position == (int32_t)i;
          gain = select(here, load(t.gain + i * padded + k), gain);
          by_winner[i] += select(here, scaled, Vec{});
        }
        store(t.dy_scaled + at, d * gain, there);
      }
      store(sums + k, load(sums + k) + total);
      for (int64_t i = 0; i < g.window; i++) {
        float* sum = sums + (1 + i) * padded + k;
        store(sum, load(sum) + by_winner[i]);
      }
    }
  }
}

}  // namespace
