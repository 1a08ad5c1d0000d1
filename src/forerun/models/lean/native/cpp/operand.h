// Rows on their way into a product, in the form that its matrix takes: groups of 8-bit terms for small weights, floats (or
// bfloat16, where a row shall be one term) for dense ones. What a product's caller sees of it is one for all.
#pragma once

#include "dense.h"
#include "products.h"

namespace forerun {

enum class Form { ONE_TERM, TWO_TERMS, FLOATS, BFLOATS };

inline Form form_of(const Matrix& w, int terms) {
  if (w.bits < 16) return terms == 1 ? Form::ONE_TERM : Form::TWO_TERMS;
  return w.bits == 16 && terms == 1 && has_bf16() ? Form::BFLOATS : Form::FLOATS;
}
inline int rows_together(Form form) {
  return form == Form::ONE_TERM ? MOST_ROWS[1] : form == Form::TWO_TERMS ? MOST_ROWS[2] : DENSE_ROWS;
}

// Bytes that every form has enough of for GROUP columns of a row: whole lines of 64.
constexpr size_t ROOM = (sizeof(Group<2>) > GROUP * sizeof(float) ? sizeof(Group<2>) + 63 : GROUP * sizeof(float)) / 64 * 64;
static_assert(sizeof(Group<1>) <= ROOM && sizeof(Group<2>) <= ROOM);

class Operand {
 public:
  Operand(const Matrix& w, int terms, int rows, uint8_t* room)
      : form_(form_of(w, terms)), columns_(w.columns), chunks_(rows, rows_together(form_)), room_(room) {}

  Form form() const { return form_; }
  const Chunks& chunks() const { return chunks_; }
  // Floats from row to row; pairs of bfloat16 are one.
  size_t stride() const { return size_t(units()) * GROUP / (form_ == Form::BFLOATS ? 2 : 1); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(room_);
  }

  // A whole row.
  void set(int row, const float* x) const {
    int k = 0;
    for (; k + GROUP <= columns_; k += GROUP) set(row, k / GROUP, load(x + k), load(x + k + LANES));
    if (k == columns_) return;
    float rest[GROUP] = {};
    std::memcpy(rest, x + k, sizeof(float) * (columns_ - k));
    set(row, k / GROUP, load(rest), load(rest + LANES));
  }
  // GROUP columns of a row.
  void set(int row, int unit, Floats a, Floats b) const {
    switch (form_) {
      case Form::ONE_TERM: return quantise<1>(a, b, as<Group<1>>()[chunks_.place(row, unit, units())]);
      case Form::TWO_TERMS: return quantise<2>(a, b, as<Group<2>>()[chunks_.place(row, unit, units())]);
      case Form::FLOATS: {
        float* to = as<float>() + row * stride() + unit * GROUP;
        store(to, a), store(to + LANES, b);
        return;
      }
      case Form::BFLOATS: return store_bf16(as<float>() + row * stride() + unit * LANES, a, b);
    }
  }

 private:
  int units() const { return (columns_ + GROUP - 1) / GROUP; }

  Form form_;
  int columns_;
  Chunks chunks_;
  uint8_t* room_;
};

// Blocks first..last for all rows: 16 results at a time are given to take(block, row, y). then: what is read after them.
template <class Take>
inline void product(const Matrix& w, int first, int last, const uint8_t* then, const Operand& in, const Take& take) {
  switch (in.form()) {
    case Form::ONE_TERM: return product<1>(w, first, last, then, in.as<Group<1>>(), in.chunks(), take);
    case Form::TWO_TERMS: return product<2>(w, first, last, then, in.as<Group<2>>(), in.chunks(), take);
    case Form::FLOATS:
      if (w.bits == 32) return dense_product<FLOATS_32>(w, first, last, then, in.as<float>(), in.stride(), in.chunks(), take);
      return dense_product<FLOATS_16>(w, first, last, then, in.as<float>(), in.stride(), in.chunks(), take);
    case Form::BFLOATS: return dense_product<PAIRS_16>(w, first, last, then, in.as<float>(), in.stride(), in.chunks(), take);
  }
}

}  // namespace forerun
