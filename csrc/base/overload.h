// A visitor for std::visit, made of one function for each alternative of the variant:
// std::visit(Overload{[](const A&) {}, [](const B&) {}}, variant).
#pragma once

namespace roundelay {

// Has the call operators of all its lambdas. If none of them takes one of the variant's alternatives,
// std::visit does not compile.
template <typename... Functions>
struct Overload : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overload(Functions...) -> Overload<Functions...>;

}  // namespace roundelay
