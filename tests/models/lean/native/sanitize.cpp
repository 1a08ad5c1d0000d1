// A random tiny model through every part of the native step, for sanitizers and other processors: chains of 1 to 64 rows,
// trees, two sequences at once, resumed rows, taps, windows, restricted heads, states beside tokens, greedy chains, one to four threads. A
// row's logits must be the same in all of them, and all of them together the same on every instruction set.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "views.h"

using namespace forerun;

extern "C" {
struct Space;
Space* forerun_workspace();
void forerun_release(Space*);
int forerun_forward(const Call*, Space*);
int forerun_chain(const Call*, const Chain*, Space*);
int forerun_linear(const Matrix*, const float*, int, float*, int, int);
int forerun_best(const float*, int, int64_t, int, float*, int32_t*);
int forerun_filtered(const float*, int, const Filters*, int, int32_t*, double*);
}

namespace {

constexpr int LAYERS = 3, WIDTH = 32, HEADS = 4, KV = 2, DIM = 24, MLP = 64, VOCAB = 50, CAPACITY = 192;
constexpr int ALL = (HEADS + 2 * KV) * DIM;

struct alignas(64) Line {
  uint8_t bytes[64];
};

// of all logits; another one where the model, the order of sums or this file changes on purpose
constexpr uint64_t WANTED = 0xa9ebf0c8830f3a94;
uint64_t found = 14695981039346656037u;
bool counted = true;  // bfloat16 rows are one term where the processor multiplies such, and none elsewhere

std::vector<std::vector<Line>> memory;
std::vector<std::vector<float>> vectors;

float uniform() { return float(std::rand()) / float(RAND_MAX) - 0.5f; }

const float* vector(size_t n) {
  vectors.emplace_back(n);
  for (float& x : vectors.back()) x = 1 + uniform();
  return vectors.back().data();
}

Matrix dense(int features, int columns, int bits, bool bias = false) {
  const size_t blocks = (features + 15) / 16, each = size_t(bits == 32 ? columns : (columns + 1) / 2) * 64;
  memory.emplace_back(blocks * each / 64);
  auto* data = memory.back()[0].bytes;
  for (size_t at = 0; at < blocks * each; at += bits / 8) {
    const float x = 0.2f * uniform();
    std::memcpy(data + at, reinterpret_cast<const uint8_t*>(&x) + 4 - bits / 8, bits / 8);
  }
  return {data, bias ? vector(blocks * 16) : nullptr, features, columns, bits, 0};
}

// halves: what is written as bfloat16 is read as float16, numbers as good as any
Matrix matrix(int features, int columns, int bits, bool bias = false, bool halves = false) {
  if (bits >= 16) return dense(features, columns, bits, bias);
  const size_t blocks = (features + 15) / 16, groups = columns / GROUP;
  const size_t each = bits == 4 ? groups * 320 : groups * 512 + 64;
  memory.emplace_back(blocks * each / 64);
  auto* data = memory.back()[0].bytes;
  for (size_t i = 0; i < blocks * each; i++) data[i] = uint8_t(std::rand());
  for (size_t b = 0; b < blocks; b++) {
    if (bits == 8)
      for (int i = 0; i < 16; i++) {
        const float scale = 0.01f * (1 + uniform());
        std::memcpy(data + b * each + groups * 512 + i * 4, &scale, 4);
      }
    for (size_t g = 0; bits == 4 && g < groups; g++)
      for (int i = 0; i < 32; i++) {
        const float x = 0.05f * uniform();
        std::memcpy(data + b * each + g * 320 + 256 + 2 * i, reinterpret_cast<const uint8_t*>(&x) + 2, 2);
      }
  }
  return {data, bias ? vector(blocks * 16) : nullptr, features, columns, bits, halves};
}

struct Text {
  std::vector<float> keys = std::vector<float>(size_t(LAYERS) * KV * CAPACITY * DIM);
  std::vector<float> values = std::vector<float>(size_t(LAYERS) * KV * CAPACITY * 32);
  int half = 0;
  std::vector<int32_t> depths;
  std::vector<uint8_t> ancestors;

  Part part(int committed, std::vector<int32_t> parents, int resumed = 0, const float* entry = nullptr) {
    const int n = int(parents.size());
    depths.assign(n, 0), ancestors.assign(size_t(n) * n, 0);
    for (int row = 0; row < n; row++) {
      const int parent = parents[row];
      if (parent >= 0) {
        depths[row] = depths[parent] + 1;
        std::memcpy(&ancestors[size_t(row) * n], &ancestors[size_t(parent) * n], n);
      }
      ancestors[size_t(row) * n + row] = 1;
    }
    bool chain = true;
    for (int row = 0; row < n; row++) chain = chain && parents[row] == row - 1;
    return {keys.data(), values.data(), depths.data(), chain ? nullptr : ancestors.data(), entry, CAPACITY, committed, 0, n,
            resumed, resumed ? 1 : 0, half};
  }
};

std::vector<int32_t> chain(int n) {
  std::vector<int32_t> parents(n);
  for (int i = 0; i < n; i++) parents[i] = i - 1;
  return parents;
}

std::vector<int32_t> longer(std::vector<int32_t> tokens, const std::vector<int32_t>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

struct Run {
  const Model& model;
  const float* const* turns;
  Space* space;
  int threads, terms;
  std::vector<float> states;  // what layer tap_layer was given
  int tap_layer = 1;

  std::vector<float> operator()(std::vector<Part> parts, const std::vector<int32_t>& tokens, const Matrix& head,
                                const int64_t* ids = nullptr) {
    const int rows = int(tokens.size());
    std::vector<int32_t> wanted = chain(rows);
    for (int32_t& row : wanted) row++;
    // what a head doesn't write stays as it is
    std::vector<float> logits(size_t(rows) * VOCAB, -__builtin_inff()), hidden(size_t(rows) * WIDTH), tap(size_t(rows) * WIDTH);
    const uint8_t skips[LAYERS] = {};
    const int32_t taps[] = {tap_layer};
    float* tapped[] = {tap.data()};
    std::vector<float> values(rows);
    std::vector<int32_t> best(rows);
    const Call call{&model, parts.data(), tokens.data(), skips, skips, wanted.data(), taps, tapped, turns, &head, ids,
                    logits.data(), hidden.data(), values.data(), best.data(),
                    int32_t(parts.size()), rows, LAYERS, rows, 1, terms, threads, 0};
    if (int failure = forerun_forward(&call, space)) std::printf("refused: %d\n", failure), std::exit(1);
    for (int row = 0; row < rows; row++) {
      const auto own = logits.begin() + size_t(row) * VOCAB;
      if (best[row] != std::max_element(own, own + VOCAB) - own || values[row] != own[best[row]])
        std::printf("row %d: %d is not its best token\n", row, best[row]), std::exit(1);
    }
    states = tap;
    if (threads == 1 && counted)
      for (float x : logits) {
        uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        found = (found ^ bits) * 1099511628211u;
      }
    return logits;
  }

  // Greedy chains after one row of each text, up to most[text] rows; a tap after the last layer beside them.
  std::vector<float> chained(std::vector<Part> parts, const std::vector<int32_t>& tokens, const Matrix& head,
                             const std::vector<int32_t>& most, std::vector<int32_t>& chosen) {
    int rows = 0;
    for (int count : most) rows += count;
    const int texts = int(parts.size());
    std::vector<int32_t> wanted = chain(texts), made(texts);
    for (int32_t& row : wanted) row++;
    std::vector<float> logits(size_t(rows) * VOCAB), hidden(size_t(rows) * WIDTH), tap(size_t(rows) * WIDTH), shares(rows);
    chosen.assign(rows, -2);
    const uint8_t skips[LAYERS] = {};
    const int32_t taps[] = {1};
    float* tapped[] = {tap.data()};
    const Call call{&model, parts.data(), tokens.data(), skips, skips, wanted.data(), taps, tapped, turns, &head, nullptr,
                    logits.data(), hidden.data(), nullptr, nullptr, texts, texts, LAYERS, texts, 1, terms, threads, 0};
    const Chain on{most.data(), made.data(), chosen.data(), shares.data(), VOCAB, 0};
    if (int failure = forerun_chain(&call, &on, space)) std::printf("refused chains: %d\n", failure), std::exit(1);
    for (int text = 0; text < texts; text++)
      if (made[text] != most[text]) std::puts("a chain is short"), std::exit(1);
    for (float share : shares)
      if (!(share > 0 && share <= 1)) std::puts("a share is none"), std::exit(1);
    return logits;
  }
};

void same(const char* what, const std::vector<float>& a, size_t row, const std::vector<float>& b, size_t other) {
  if (std::memcmp(&a[row * VOCAB], &b[other * VOCAB], sizeof(float) * VOCAB)) std::printf("other bits: %s\n", what), std::exit(1);
}

void check(const Model& model, const float* const* turns, int threads, int terms, int half) {
  Space* space = forerun_workspace();
  Run run{model, turns, space, threads, terms, {}};
  const std::vector<int32_t> prefix(70, 7), path = {3, 4, 5, 6, 8};
  const Matrix& head = model.embedding;
  Text plain, tree, neighbour, resuming;
  for (Text* text : {&plain, &tree, &neighbour, &resuming}) text->half = half;
  std::vector<float> whole;
  for (Text* text : {&plain, &tree, &resuming}) whole = run({text->part(0, chain(70))}, prefix, head);
  std::vector<float> wanted;
  for (int i = 0; i < 5; i++) {
    const auto row = run({plain.part(70 + i, chain(1))}, {path[i]}, head);
    wanted.insert(wanted.end(), row.begin(), row.end());
  }
  const auto rows = run({neighbour.part(0, chain(9)), tree.part(70, {-1, -1, 1, 0, 2, 2, 5, 6})},
                        {1, 1, 1, 1, 1, 1, 1, 1, 1, 9, 3, 4, 2, 11, 5, 6, 8}, head);
  const int nodes[] = {1, 2, 5, 6, 7};
  for (int i = 0; i < 5; i++) same("a tree's path", rows, 9 + nodes[i], wanted, i);
  auto again = run({resuming.part(70, chain(5))}, path, head);
  for (int i = 0; i < 5; i++) same("a chain", again, i, wanted, i);
  const std::vector<float> entry = run.states;
  again = run({resuming.part(70, chain(5), 2, entry.data()), neighbour.part(9, chain(3))}, {3, 4, 5, 6, 8, 1, 2, 3}, head);
  for (int i = 0; i < 5; i++) same("resumed rows", again, i, wanted, i);
  for (int n = threads; n <= 64; n += threads == 4 ? 1 : 7) {
    Text text;
    text.half = half;
    const std::vector<int32_t> tokens(prefix.begin(), prefix.begin() + n);
    again = run({text.part(0, chain(n)), neighbour.part(12, chain(2))}, longer(tokens, {1, 2}), head);
    for (int i = 0; i < n; i++) same("any number of rows", again, i, whole, i);
  }
  const Matrix some = matrix(3, WIDTH, 8);
  const int64_t ids[] = {0, 17, 49};
  run({resuming.part(70, chain(5))}, path, some, ids);
  forerun_release(space);
}

// A text's next rows, one of them, with room in its depths for those that a chain adds.
Part ahead(Text& text, int committed, int rows, int resumed = 0, const float* entry = nullptr) {
  Part part = text.part(committed, chain(rows), resumed, entry);
  part.n = 1, part.ancestors = nullptr, part.enter = 0;
  return part;
}

int best_of(const std::vector<float>& logits, size_t row) {
  int32_t token;
  float value;
  if (forerun_best(&logits[row * VOCAB], 1, VOCAB, VOCAB, &value, &token)) std::exit(1);
  return token;
}

// Chains of unequal lengths against single steps.
void check_chains(const Model& model, const float* const* turns, int threads, int terms, int half) {
  Space* space = forerun_workspace();
  Run run{model, turns, space, threads, terms, {}};
  const std::vector<int32_t> most = {1, 6, 3};
  const std::vector<int> lengths = {5, 61, 20};
  Text texts[3], single[3];
  std::vector<Part> parts;
  // not of the random numbers, which others go on with
  std::vector<float> states(3 * WIDTH);
  for (int i = 0; i < 3 * WIDTH; i++) states[i] = float(i * 37 % 101) / 50 - 1;
  const bool fused = model.fuse.data;
  const bool was = counted;
  counted = false;  // the same bits as elsewhere
  for (int i = 0; i < 3; i++) {
    texts[i].half = single[i].half = half;
    if (!fused)
      for (Text* text : {&texts[i], &single[i]})
        run({text->part(0, chain(lengths[i]))}, std::vector<int32_t>(lengths[i], 7), model.embedding);
    const int before = fused ? 0 : lengths[i];
    parts.push_back(fused ? ahead(texts[i], before, most[i], 1, &states[size_t(i) * WIDTH]) : ahead(texts[i], before, most[i]));
  }
  std::vector<int32_t> chosen;
  const auto rows = run.chained(parts, {8, 9, 10}, model.embedding, most, chosen);
  for (int i = 0, row = 0; i < 3; i++) {
    int token = 8 + i;
    std::vector<float> entry(&states[size_t(i) * WIDTH], &states[size_t(i) * WIDTH] + WIDTH);
    for (int step = 0; step < most[i]; step++, row++) {
      const int at = (fused ? 0 : lengths[i]) + step;
      Part part = fused ? ahead(single[i], at, 1, 1, entry.data()) : ahead(single[i], at, 1);
      run.tap_layer = LAYERS;
      const auto own = run({part}, {token}, model.embedding);
      run.tap_layer = 1;
      entry = run.states;
      same("a chain's row", rows, row, own, 0);
      if (chosen[row] != (token = best_of(own, 0))) std::puts("another token"), std::exit(1);
    }
  }
  counted = was;
  forerun_release(space);
}

// A decoder that reads states beside its tokens.
void check_fused(Model model, int columns, const float* const* turns, int threads, int terms) {
  model.fuse = matrix(WIDTH, columns, columns == WIDTH ? 4 : 8), model.state_norm = vector(WIDTH);
  Space* space = forerun_workspace();
  Run run{model, turns, space, threads, terms, {}};
  const float* states = vector(size_t(9) * WIDTH);
  Text plain, whole, neighbour;
  const auto reads = [&](Text& text, int committed, int n, const float* from) {
    Part part = text.part(committed, chain(n), n, from);
    part.enter = 0;
    return part;
  };
  std::vector<float> wanted;
  for (int i = 0; i < 9; i++) {
    const auto row = run({reads(plain, i, 1, states + size_t(i) * WIDTH)}, {i}, model.embedding);
    wanted.insert(wanted.end(), row.begin(), row.end());
  }
  const auto rows = run({reads(neighbour, 0, 2, states), reads(whole, 0, 9, states)},
                        {7, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8}, model.embedding);
  for (int i = 0; i < 9; i++) same("rows of states", rows, 2 + i, wanted, i);
  forerun_release(space);
  check_chains(model, turns, threads, terms, 0);
}

// Rows of every awkward length, whose arrays end where they say.
void choose() {
  for (int count : {1, 15, 16, 63, 64, 65, 97, 4097, 20003}) {
    std::vector<float> row(count), value(1);
    std::vector<int32_t> tokens(64);
    std::vector<double> shares(64);
    for (int i = 0; i < count; i++) row[i] = float((i * 37 + 11) % 101) / 9;
    const std::vector<Filters> all = {{1, 5, 1, 0}, {.7f, 50, .9, 0}, {1, 0, .3, 0}, {1, 0, 1, .9}, {2, 0, .99, .01}};
    for (const Filters& f : all) {
      const int kept = forerun_filtered(row.data(), count, &f, 64, tokens.data(), shares.data());
      if (kept < 0 || kept > 64) std::exit(1);
    }
    if (forerun_best(row.data(), 1, count, count, value.data(), tokens.data())) std::exit(1);
    if (tokens[0] < 0 || tokens[0] >= count || value[0] != row[tokens[0]]) std::exit(1);
  }
}

// Layers in these bits, the second one's gates and ups in others, under an embedding and head of those.
void check(int bits, int mixed, int table) {
  std::vector<Layer> layers;
  for (int i = 0; i < LAYERS; i++) {
    Layer l{matrix(ALL, WIDTH, bits, true), matrix(WIDTH, HEADS * DIM, bits), matrix(2 * MLP, WIDTH, i ? bits : mixed),
            matrix(WIDTH, MLP, bits, false, i == 2),
            vector(WIDTH), i == 1 ? vector(WIDTH) : nullptr, vector(WIDTH), i == 2 ? vector(WIDTH) : nullptr,
            vector(HEADS * DIM), vector(KV * DIM), i != 1, i == 2 ? 20 : 0, 0, 0};
    layers.push_back(l);
  }
  std::vector<float> turn(size_t(256) * 3 * DIM);
  for (float& x : turn) x = uniform();
  const float* turns[] = {turn.data()};
  for (int activation = 0; activation < 2; activation++) {
    const Model model{LAYERS, WIDTH, HEADS, KV, DIM, MLP, VOCAB, activation, 1e-5f, 1.f, 0.5f, 2.f,
                      matrix(VOCAB, WIDTH, table, false, activation == 1), vector(WIDTH), layers.data(), {}, nullptr};
    for (int threads : {1, 2, 3, 4})
      for (int terms : {1, 2}) {
        counted = terms == 2 || (bits != 16 && mixed != 16 && table != 16);
        for (int half : {0, 1}) check(model, turns, threads, terms, half), check_chains(model, turns, threads, terms, half);
        for (int columns : {WIDTH, 2 * WIDTH}) check_fused(model, columns, turns, threads, terms);
      }
  }
  std::vector<float> x(3 * WIDTH, 0.5f), y(3 * ALL);
  if (forerun_linear(&layers[0].qkv, x.data(), 3, y.data(), 2, 3)) std::puts("a product was refused"), std::exit(1);
}

}  // namespace

int main() {
  std::srand(1);
  choose();
  check(4, 8, 8);
  check(16, 32, 16);
  check(32, 4, 32);
  check(4, 16, 16);
  check(4, 8, 4);
  if (found != WANTED) return std::printf("other bits: %llx of all logits\n", (unsigned long long)found), 1;
  std::puts("native step: nothing found");
}
