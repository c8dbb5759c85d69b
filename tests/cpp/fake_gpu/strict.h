// What a real device refuses, and a CPU does not notice.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <initializer_list>

namespace roundelay::fake_gpu {

// Throws if the operator's arguments on the stack are tensors of several devices, or a generator of another
// device than theirs. A CPU tensor without dimensions is a number, and indices may lie on the CPU.
void expect_one_device(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
// Does the same for these tensors, of which some may be undefined.
void expect_one_device(const char* name, std::initializer_list<at::Tensor> tensors);

}  // namespace roundelay::fake_gpu
