// Waiting for the core on a thread of Python's.
#pragma once

#include "base/status.h"
#include "runtime/context.h"
#include "submit/handles.h"

namespace roundelay::bindings {

// Sleeps, without the GIL, until the handle is done. Python's signal handlers run in between; if one raises,
// that is thrown and the handle stays valid.
Status wait(runtime::Context& context, submit::Handle handle);

}  // namespace roundelay::bindings
