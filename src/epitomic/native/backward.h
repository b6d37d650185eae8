// The gradients of the input (dM U^T, transformed back and folded), the weights (X^T dM), bias and gain (sums of dy).
#pragma once

#include "products.h"

namespace {

// ---- dx

struct InputTasks {
  int64_t images, image_groups;      // images per group, and groups: no two groups write to the same pixel
  int64_t channel_parts;             // parts of the channels, more than 1 only where images are fewer than threads
  int64_t block;                     // patches at a time

  InputTasks(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan) {
    int64_t patches = g.oh * g.ow;
    images = max(1, (plan.block + patches / 2) / patches);
    image_groups = (p.n + images - 1) / images;
    images = (p.n + image_groups - 1) / image_groups;
    int64_t panels = g.c_panels / plan.channel_groups;
    channel_parts = max(1, min(panels, (p.threads + image_groups - 1) / image_groups));
    int64_t blocks = images > 1 ? 1 : (patches + plan.block - 1) / plan.block;
    block = min(round_up((images * patches + blocks - 1) / blocks, ROWS), images * patches);
  }

  Products products(const Geometry& g, int64_t panels) const { return Products(g, block, g.k, panels, g.pw); }

  int64_t floats(const EpitomicProblem& p, const Geometry& g, int64_t panels) const {
    return products(g, panels).floats + (p.dx_planes ? images * p.h * p.w * panels * PANEL : 0);
  }
};

// Mean of a patch's gradient: sum_k dy[k] * mean of the winning filter.
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

// Where a task adds up the gradients of its patches, for its images and channels.
struct Canvas {
  float* data;
  int64_t pixel, row;  // floats from one pixel, and one row, to the next
  int64_t channels;

  void clear(int64_t pixels) const {
    if (channels == pixel) {
      __builtin_memset(data, 0, (size_t)(pixels * pixel) * sizeof(float));
      return;
    }
    for (int64_t i = 0; i < pixels; i++) __builtin_memset(data + i * pixel, 0, (size_t)channels * sizeof(float));
  }
};

// Transforms one patch back along the height and adds it to its pixels. With EDGE, some rows are outside of the image.
template <int V, int P, bool DATA, bool EDGE>
INLINE void fold_patch(const float* map, const Geometry& g, const Canvas& canvas, float* to, Inside rows,
                       Inside columns, float mean, const float* z, int64_t panel, int64_t plane) {
  for (int64_t c = 0; c < canvas.channels; c += LANES) {
    const float* from = z + c / PANEL * panel + c % PANEL;
    int64_t there = canvas.channels - c;
    for (int64_t j = columns.first; j < columns.last; j++) {
      Vec points[V], column[P];
      UNROLL for (int i = 0; i < V; i++) points[i] = load(from + (i * g.pw + j) * plane);
      gather<V, P, DATA>(map, points, column);
      UNROLL for (int i = 0; i < P; i++) {
        if (EDGE && (i < rows.first || i >= rows.last)) continue;
        float* pixel = to + j * canvas.pixel + i * canvas.row + c;
        store(pixel, load(pixel, there) + (column[i] - mean), there);
      }
    }
  }
}

// The same for the patches of a block.
template <int V, int P, bool DATA>
void fold_block(const EpitomicProblem& p, const Geometry& g, const Canvas& canvas, Block block, const float* means,
                const float* z, int64_t plane) {
  Walk at(g, block);
  for (int64_t b = 0; b < block.count; b++, at.next()) {
    int64_t top = at.i * p.stride[0] - p.before[0], left = at.j * p.stride[1] - p.before[1];
    Inside rows(top, P, p.h), columns(left, g.pw, p.w);
    float* to = canvas.data + ((at.n * p.h + top) * p.w + left) * canvas.pixel;
    const float *map = p.patch_map[0], *from = z + b * PANEL;
    int64_t panel = block.count * PANEL;
    if (rows.all(P))
      fold_patch<V, P, DATA, false>(map, g, canvas, to, rows, columns, means[b], from, panel, plane);
    else
      fold_patch<V, P, DATA, true>(map, g, canvas, to, rows, columns, means[b], from, panel, plane);
  }
}

typedef void (*FoldBlock)(const EpitomicProblem&, const Geometry&, const Canvas&, Block, const float* means,
                          const float* z, int64_t plane);
const FoldBlock FOLD_BLOCK[9][9] = TABLE_OF_MAPS(fold_block);

// Task: some images and some channels. Where dx is in planes, the workspace holds the sums until they are transposed.
INLINE void backward_input(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan,
                           const EpitomicTensors& t, int64_t task, float* workspace) {
  InputTasks tasks(p, g, plan);
  Block images = part(p.n, tasks.image_groups, task / tasks.channel_parts, 1);
  Block group = part(g.c_panels, plan.channel_groups, t.group, 1);
  Block panels = part(group.count, tasks.channel_parts, task % tasks.channel_parts, 1);
  CHECK(panels.count > 0 && images.count > 0 && images.count <= tasks.images);
  Products products = tasks.products(g, panels.count);
  int64_t channel = (group.first + panels.first) * PANEL, channels = min(panels.count * PANEL, g.c - channel);
  int64_t pixels = p.h * p.w, patches = g.oh * g.ow;
  Canvas canvas = {t.dx + images.first * pixels * g.c + channel, g.c, g.row, channels};
  if (p.dx_planes) {
    int64_t whole = panels.count * PANEL;
    canvas = {workspace + products.floats, whole, p.w * whole, whole};
  }
  canvas.clear(images.count * pixels);
  float* means = workspace + products.means_at;
  for (int64_t first = 0; first < images.count * patches; first += tasks.block) {
    Block there = {first, min(tasks.block, images.count * patches - first)};  // in the canvas
    Block block = {images.first * patches + first, there.count};
    for (int64_t b = 0; b < block.count; b++) means[b] = t.filter_mean ? gradient_mean(g, t, block.first + b) : 0;
    for (int64_t vh = 0; vh < g.vh; vh++) {
      gradient_row(p, g, t, block, {0, g.k_panels}, vh, products.left_factor(workspace));
      products.row(g, t.u_transposed, group.count, panels.first, channels, GATHER_ALL[g.vw][g.patch_map[1]],
                   p.patch_map[1], vh, block.count, workspace);
    }
    FOLD_BLOCK[g.vh][g.patch_map[0]](p, g, canvas, there, means, workspace + products.partial_at, products.partial);
  }
  if (!p.dx_planes) return;
  for (int64_t n = 0; n < images.count; n++)
    for (int64_t c = 0; c < channels; c += LINE)  // one cache line of each pixel at a time
      transpose(canvas.data + n * pixels * canvas.pixel + c, pixels, canvas.pixel, min(LINE, channels - c),
                t.dx + ((images.first + n) * g.c + channel + c) * pixels, pixels);
}

// ---- dU

struct WeightTasks {
  int64_t output_parts, channel_parts;                  // parts of a group: at least one of the two is 1
  int64_t panels, channels;                             // panels and channels of the largest part
  int64_t stride, left, right;                          // floats between rows of X, planes of X and planes of dM
  int64_t right_at, floats;

  WeightTasks(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan) {
    int64_t wanted = (4 * p.threads + g.vh * plan.slices - 1) / (g.vh * plan.slices);  // four tasks per thread
    int64_t max_panels = (g.k_panels + plan.output_groups - 1) / plan.output_groups;
    // Each part of the channels computes dM again, and each part of the outputs X. So the larger of the two is split.
    bool by_channels = g.c > max_panels * PANEL;
    output_parts = by_channels ? 1 : max(1, min(wanted, g.k_panels / plan.output_groups / 4));
    channel_parts = by_channels ? max(1, min(wanted, g.c_panels / 4)) : 1;
    panels = (max_panels + output_parts - 1) / output_parts;
    channels = min((g.c_panels + channel_parts - 1) / channel_parts * PANEL, g.c);
    stride = Products::row_stride(channels);
    left = spread(plan.block * stride);
    right = spread(panels * plan.block * PANEL);
    right_at = g.vw * left;
    floats = right_at + g.vw * right;
  }
};

// Task: a row of points, a slice of the patches, and some outputs or some channels. Its part of dU stays in the cache
// while it walks through the patches.
INLINE void backward_weights(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan,
                             const EpitomicTensors& t, int64_t task, float* workspace) {
  WeightTasks tasks(p, g, plan);
  Block group = part(g.k_panels, plan.output_groups, t.group, 1);
  int64_t parts = tasks.output_parts * tasks.channel_parts;
  Block panels = part(group.count, tasks.output_parts, task % tasks.output_parts, 1);
  Block channels = part(g.c, tasks.channel_parts, task % tasks.channel_parts, PANEL);
  int64_t columns = g.k - (group.first + panels.first) * PANEL;
  int64_t vh = task / parts % g.vh, slice = task / parts / g.vh;
  Block patches = part(g.patches, plan.slices, slice, 1);
  CHECK(panels.count <= tasks.panels && channels.count <= tasks.channels && patches.count > 0);
  Image image = input_image(p, g, t);
  Factor left = {workspace, tasks.left, tasks.stride, PANEL, true};
  int64_t blocks = (patches.count + plan.block - 1) / plan.block;
  for (int64_t i = 0; i < blocks; i++) {
    Block block = part(patches.count, blocks, i, 1);
    block.first += patches.first;
    Factor right = {workspace + tasks.right_at, tasks.right, PANEL, block.count * PANEL, false};
    image_row(g, image, block, channels, vh, left);
    gradient_row(p, g, t, block, {group.first + panels.first, panels.count}, vh, right);
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

// Task: a run of patches. Its sums go to its own plane of `sums`.
INLINE void backward_affine(const Geometry& g, const EpitomicTensors& t, int64_t task) {
  int64_t padded = g.k_panels * PANEL;
  float* sums = t.sums + task * (1 + g.window) * padded;
  for (int64_t i = 0; i < (1 + g.window) * padded; i++) sums[i] = 0;
  Block run = part(g.patches, AFFINE_TASKS, task, 1);
  for (int64_t start = run.first; start < run.first + run.count; start += 64) {  // few enough to stay in the cache
    int64_t end = min(start + 64, run.first + run.count);
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
