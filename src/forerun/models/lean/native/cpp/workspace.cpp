#include "workspace.h"

#include <algorithm>

namespace forerun {
namespace {

template <class T>
Buffer<T> buffer(size_t count) {
  const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
  void* memory = std::aligned_alloc(64, bytes ? bytes : 64);
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return Buffer<T>(static_cast<T*>(memory));
}

}  // namespace

void Workspace::prepare(const Call& call, size_t group_size) {
  lay_out(call);
  size_t longest = 0;
  for (const Row& row : rows) longest = std::max<size_t>(longest, std::max(row.slot, row.position) + 1);
  reserve(call, longest, group_size);
}

bool Workspace::sound() const {
  size_t path = 0;
  for (const Row& row : rows) {
    if (row.slot < 0 || row.slot >= row.part->capacity || row.position < row.part->committed) return false;
    const size_t seen = size_t(row.position - row.part->committed) + 1;
    if (row.path ? paths_[path++].size() != seen : row.position != row.slot) return false;
  }
  return true;
}

void Workspace::reserve(const Call& call, size_t longest, size_t group_size) {
  const Model& m = *call.model;
  const size_t inner = size_t(m.heads) * m.head_dim, all = inner + 2 * size_t(m.kv_heads) * m.head_dim;
  const size_t widest = std::max({size_t(m.width), inner, size_t(m.mlp)});
  const std::vector<size_t> wanted = {size_t(call.rows),
                                      size_t(m.width),
                                      all,
                                      widest,
                                      group_size,
                                      (longest + SLOTS) / SLOTS * SLOTS,
                                      size_t(call.threads)};
  if (reserved_.size() == wanted.size() && std::equal(wanted.begin(), wanted.end(), reserved_.begin(), std::less_equal<>()))
    return;
  if (reserved_.empty()) reserved_.assign(wanted.size(), 0);
  for (size_t i = 0; i < wanted.size(); i++) reserved_[i] = std::max(reserved_[i], wanted[i]);
  if (reserved_[5] == wanted[5]) reserved_[5] *= 2;  // a text grows
  const size_t count = reserved_[0], width = reserved_[1], flat_width = std::max(reserved_[2], padded(width));
  x = buffer<float>(count * width);
  flat = buffer<float>(count * flat_width);
  mixed = buffer<float>(count * reserved_[3]);
  scores_stride = reserved_[5];
  groups.clear(), threads_.clear();
  for (size_t i = 0; i < 2 + reserved_[6]; i++)
    groups.push_back(buffer<uint8_t>((i < 2 ? count : std::min<size_t>(count, 3)) * reserved_[3] / GROUP * reserved_[4]));
  // one thread alone takes all rows as its own
  if (reserved_[6] >= 1) groups[2] = buffer<uint8_t>(count * reserved_[3] / GROUP * reserved_[4]);
  for (size_t i = 0; i < reserved_[6]; i++)
    threads_.push_back({buffer<float>(TOGETHER * scores_stride), buffer<float>(padded(std::max(width, flat_width))),
                        buffer<float>(count * 4 * LANES)});
}

void Workspace::find_paths(const Part& part) {
  for (int row = 0; row < part.n; row++) {
    std::vector<int32_t> path;
    for (int slot = 0; slot <= part.first + row; slot++)
      if (part.ancestors[size_t(row) * (part.first + part.n) + slot]) path.push_back(slot);
    paths_.push_back(std::move(path));
  }
}

void Workspace::lay_out(const Call& call) {
  rows.clear(), paths_.clear(), live_.clear();
  for (int i = 0; i < call.num_parts; i++)
    if (call.parts[i].ancestors) find_paths(call.parts[i]);
  std::vector<int> enters = {0};
  size_t path = 0;
  for (int i = 0; i < call.num_parts; i++) {
    const Part& part = call.parts[i];
    if (part.resumed) enters.push_back(part.enter);
    for (int row = 0; row < part.n; row++) {
      const int32_t* own = part.ancestors ? paths_[path++].data() : nullptr;
      const float* entry = row < part.resumed ? part.entry + size_t(row) * call.model->width : nullptr;
      rows.push_back({&part, entry, own, part.committed + part.depths[part.first + row], part.committed + part.first + row});
    }
  }
  for (int layer : enters) {
    Live& live = live_[layer];
    if (live.count()) continue;
    int flat_row = 0;
    for (int i = 0; i < call.num_parts; i++) {
      const Part& part = call.parts[i];
      const int idle = layer < part.enter ? part.resumed : 0, first = live.count();
      int64_t cost = 0;
      for (int row = idle; row < part.n; row++) {
        live.rows.push_back(flat_row + row);
        cost += rows[flat_row + row].position + SLOTS;
      }
      if (part.n > idle) live.parts.push_back({&part, first, part.n - idle, cost});
      flat_row += part.n;
    }
    cut(*call.model, call.threads, live);
  }
}

// Cut where threads' shares begin as well, by how much queries read, so that the last one isn't waited for long.
void Workspace::cut(const Model& m, int threads, Live& live) {
  const int group = m.heads / m.kv_heads;
  int64_t whole = 0, before = 0;
  for (const Stretch& part : live.parts) whole += part.cost;
  for (int part = 0; part < int(live.parts.size()); part++) {
    const int each = live.parts[part].count * group, queries = m.kv_heads * each;
    const int64_t cost = live.parts[part].cost;
    int share = 1;
    const auto end = [&] { return int(std::clamp<int64_t>((whole * share / threads - before) * queries / cost, 0, queries)); };
    for (int i = 0; i < queries;) {
      while (share < threads && end() <= i) share++;
      const int head = i / each, stop = std::min(share < threads ? end() : queries, (head + 1) * each);
      const int count = std::min(stop - i, TOGETHER);
      live.pieces.push_back({part, head, i - head * each, count});
      i += count;
    }
    before += cost;
  }
}

}  // namespace forerun
