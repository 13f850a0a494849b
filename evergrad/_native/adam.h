// Clipping and Adam: one look at every gradient for its norm, and one pass over weights and moments, in place.

#ifndef EVERGRAD_ADAM_H_
#define EVERGRAD_ADAM_H_

#include <cmath>

#include "team.h"
#include "vectors.h"

namespace {

constexpr int64_t kPortion = 1 << 13;  // numbers that a thread takes at a time; what is summed does not depend on threads

// So many portions on one thread, or on all if there are many.
template <typename Item>
void Portions(ffi::ThreadPool& pool, int64_t count, Item item) {
  constexpr int64_t kFew = 8;
  if (count < kFew) {
    for (int64_t i = 0; i < count; ++i) item(i);
  } else {
    ShareOut(pool, count, item);
  }
}

template <typename T>
T SumOfSquares(const T* from, int64_t numbers) {
  constexpr int64_t kTogether = 4;
  Vector<T> sum[kTogether] = {};
  int64_t i = 0;
  for (; i + kTogether * kLanes<T> <= numbers; i += kTogether * kLanes<T>) {
    for (int64_t j = 0; j < kTogether; ++j) {
      const Vector<T> here = Load(from + i + j * kLanes<T>);
      sum[j] += here * here;
    }
  }
  const Vector<T> all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  T total = 0;
  for (int64_t lane = 0; lane < kLanes<T>; ++lane) total += all[lane];
  for (; i < numbers; ++i) total += from[i] * from[i];
  return total;
}

// A stretch of one array of weights.
template <typename T>
struct Stretch {
  T *weight, *mean, *square;
  const T* gradient;
  int64_t numbers;
  bool clipped;
};

template <typename T>
struct Adam {
  T rate, keep_mean, new_mean, keep_square, new_square, mean_share, square_share, epsilon, root_epsilon;

  void Update(const Stretch<T>& at, T scale, T shrink) const {
    T *__restrict w = at.weight, *__restrict m = at.mean, *__restrict v = at.square;
    const T* __restrict from = at.gradient;
    for (int64_t i = 0; i < at.numbers; ++i) {
      const T g = from[i] * scale * shrink;
      m[i] = new_mean * g + keep_mean * m[i];
      v[i] = new_square * (g * g) + keep_square * v[i];
      w[i] += rate * ((m[i] * mean_share) / (std::sqrt(v[i] * square_share + root_epsilon) + epsilon));
    }
  }
};

// `arrays` are all weights, then all means, all mean squares, and all gradients, of which the first `inside` are clipped
// together. Without a target nothing changes.
template <ffi::DataType kType>
ffi::Error AdamCall(ffi::ThreadPool pool, ffi::Buffer<kType> rate, ffi::Buffer<kType> clip, ffi::Buffer<ffi::S32> count,
                    ffi::Buffer<ffi::PRED> target, ffi::RemainingArgs arrays, ffi::Result<ffi::Buffer<ffi::S32>> counted,
                    ffi::RemainingRets out, int64_t inside, int64_t steps, double keep_mean, double keep_square,
                    double epsilon, double root_epsilon) {
  using T = ffi::NativeType<kType>;
  const int64_t leaves = arrays.size() / 4, before = count.typed_data()[0];
  if (!target.typed_data()[0]) {
    counted->typed_data()[0] = before;
    return ffi::Error::Success();
  }
  const int64_t now = before + (before < INT32_MAX);
  counted->typed_data()[0] = now;
  std::vector<Stretch<T>> stretches;
  for (int64_t leaf = 0; leaf < leaves; ++leaf) {
    T* parts[3];
    for (int64_t part = 0; part < 3; ++part) {
      auto given = arrays.get<ffi::Buffer<kType>>(part * leaves + leaf);
      auto taken = out.get<ffi::Buffer<kType>>(part * leaves + leaf);
      if (!given.has_value() || !taken.has_value()) return ffi::Error::InvalidArgument("adam: arrays of another kind");
      parts[part] = (*taken)->typed_data();
      if (parts[part] != given->typed_data()) return ffi::Error::Internal("adam works in place");
    }
    auto gradient = arrays.get<ffi::Buffer<kType>>(3 * leaves + leaf);
    if (!gradient.has_value()) return ffi::Error::InvalidArgument("adam: gradients of another kind");
    const int64_t numbers = gradient->element_count();
    for (int64_t from = 0; from < numbers; from += kPortion)
      stretches.push_back({parts[0] + from, parts[1] + from, parts[2] + from, gradient->typed_data() + from,
                           std::min(kPortion, numbers - from), leaf < inside});
  }
  const T scale = T(1) / steps, most = clip.typed_data()[0];
  T shrink = 1;
  if (!std::isinf(most)) {
    std::vector<T> squares(stretches.size());
    Portions(pool, stretches.size(), [&](int64_t i) {
      squares[i] = stretches[i].clipped ? SumOfSquares(stretches[i].gradient, stretches[i].numbers) : T(0);
    });
    T sum = 0;
    for (T each : squares) sum += each;
    const T size = std::sqrt(sum) * scale;
    shrink = std::isnan(size) ? size : std::min(T(1), most / std::max(size, most));
  }
  const Adam<T> adam{rate.typed_data()[0],
                     T(keep_mean),
                     T(1 - keep_mean),
                     T(keep_square),
                     T(1 - keep_square),
                     T(1 / (1 - std::pow(keep_mean, double(now)))),
                     T(1 / (1 - std::pow(keep_square, double(now)))),
                     T(epsilon),
                     T(root_epsilon)};
  Portions(pool, stretches.size(), [&](int64_t i) {
    adam.Update(stretches[i], scale, stretches[i].clipped ? shrink : T(1));
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto BindAdam() {
  using A = ffi::Buffer<kType>;
  using Number = ffi::Buffer<ffi::S32>;
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<A>().template Arg<A>().template Arg<Number>()
      .template Arg<ffi::Buffer<ffi::PRED>>().RemainingArgs().template Ret<Number>().RemainingRets()
      .template Attr<int64_t>("inside").template Attr<int64_t>("steps").template Attr<double>("keep_mean")
      .template Attr<double>("keep_square").template Attr<double>("epsilon").template Attr<double>("root_epsilon");
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(adam_float32, AdamCall<ffi::F32>, BindAdam<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(adam_float64, AdamCall<ffi::F64>, BindAdam<ffi::F64>());

#endif  // EVERGRAD_ADAM_H_
