// Module _model: the cost model and the simulator. It needs neither PyTorch's libraries nor a job.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/job.h"
#include "model/levels.h"
#include "model/movement.h"
#include "model/techniques.h"

namespace roundelay::bindings {
namespace {

namespace py = pybind11;

model::Algorithm algorithm(const std::string& name) {
  if (const auto found = model::algorithm_named(name)) return *found;
  throw py::value_error("unknown algorithm: " + name);
}

model::Movement movement(const std::string& name) {
  if (const auto found = model::movement_named(name)) return *found;
  throw py::value_error("unknown operation: " + name);
}

void require(bool holds, const char* error) {
  if (!holds) throw py::value_error(error);
}

void check(const model::Cluster& cluster) {
  for (const model::Level& level : cluster.levels) {
    require(level.parts >= 1, "a level needs at least 1 part");
    require(level.link.sharers >= 1, "a link needs at least 1 sharer");
    require(level.link.bandwidth > 0, "a link's bandwidth must be positive");
    require(level.link.latency >= 0 && level.link.reduce >= 0, "a link's times must not be negative");
  }
  require(cluster.memory_bandwidth > 0, "a bandwidth must be positive");
  if (cluster.nodes.empty()) return;
  std::size_t nodes = 1;
  for (std::size_t level = 1; level < cluster.levels.size(); ++level)
    nodes *= static_cast<std::size_t>(cluster.levels[level].parts);
  require(!cluster.levels.empty() && nodes == cluster.nodes.size(),
          "the levels above the first one do not join as many nodes as have sizes");
  require(std::ranges::min(cluster.nodes) >= 1, "a node needs at least 1 rank");
  require(std::ranges::max(cluster.nodes) == cluster.levels.front().parts,
          "the first level does not have as many parts as the largest node");
}

void check(const model::Program& program, const model::Cluster& cluster) {
  require(program.chunks >= 1, "a program needs at least 1 chunk");
  for (const model::Stage& stage : program.stages) {
    require(stage.messages >= 0 && stage.bytes >= 0 && stage.reduced >= 0,
            "a stage's sizes must not be negative");
    require(stage.kind != model::Stage::Kind::kLink || stage.level < cluster.levels.size(),
            "a stage's level is none of the cluster's");
  }
}

void check_simulated(const model::Program& program, const model::Cluster& cluster) {
  check(program, cluster);
  for (const model::Stage& stage : program.stages)
    require(!stage.from_one, "stages from one part are not simulated");
}

using LevelTuple = std::tuple<int, double, double>;            // parts, seconds a message, bytes a second
using StageTuple = std::tuple<int, std::size_t, std::size_t>;  // members, and the levels that it joins

double seconds_of_way(const std::vector<LevelTuple>& levels, const std::vector<StageTuple>& plan,
                      const std::string& name, double bytes) {
  std::vector<model::Level> own;
  own.reserve(levels.size());
  for (const auto& [parts, latency, bandwidth] : levels) own.push_back({parts, {latency, bandwidth}});
  const model::Cluster cluster = model::with_shared_ends(std::move(own));
  check(cluster);
  std::vector<model::Factor> stages;
  for (const auto& [members, first, last] : plan) {
    require(members >= 1 && first <= last && last < levels.size(), "a stage does not fit the levels");
    stages.push_back({members, first, last});
  }
  require(bytes >= 0, "a size must not be negative");
  return model::seconds_of_way(cluster, stages, algorithm(name), bytes);
}

model::Outcome checked_simulation(const model::Job& job) {
  check(job.cluster);
  require(job.steps >= 1, "steps must be at least 1");
  require(job.forward >= 0 && job.backward >= 0 && job.update >= 0 && job.jitter >= 0 && job.overhead >= 0,
          "times must not be negative");
  double ready = 0;
  for (const model::ReadyBucket& bucket : job.buckets) {
    check_simulated(bucket.program, job.cluster);
    require(bucket.ready >= ready, "buckets must become ready in their order");
    ready = bucket.ready;
  }
  check_simulated(job.transfer.program, job.cluster);
  require(job.cluster.nodes.empty() || job.jitter == 0,
          "ranks differ in nodes of equally many ranks alone: take no jitter");
  require(job.transfer.every >= 0 && job.transfer.wait >= 0, "a transfer's steps must not be negative");
  const py::gil_scoped_release released;
  return model::simulate(job);
}

void bind_cluster(py::module_& module) {
  py::class_<model::Link>(module, "Link")
      .def(py::init([](double latency, double bandwidth, double reduce, int sharers) {
             return model::Link{latency, bandwidth, reduce, sharers};
           }),
           py::arg("latency"), py::arg("bandwidth"), py::arg("reduce") = 0.0, py::arg("sharers") = 1)
      .def_readwrite("latency", &model::Link::latency)
      .def_readwrite("bandwidth", &model::Link::bandwidth)
      .def_readwrite("reduce", &model::Link::reduce)
      .def_readwrite("sharers", &model::Link::sharers);
  py::class_<model::Level>(module, "Level")
      .def(py::init([](int parts, const model::Link& link) {
             return model::Level{parts, link};
           }),
           py::arg("parts"), py::arg("link"))
      .def_readwrite("parts", &model::Level::parts)
      .def_readwrite("link", &model::Level::link);
  constexpr double kEndless = std::numeric_limits<double>::infinity();
  py::class_<model::Cluster>(module, "Cluster")
      .def(py::init([](std::vector<model::Level> levels, double memory_bandwidth, std::vector<int> nodes) {
             model::Cluster cluster{std::move(levels), memory_bandwidth, std::move(nodes)};
             check(cluster);
             return cluster;
           }),
           py::arg("levels"), py::arg("memory_bandwidth") = kEndless, py::arg("nodes") = py::tuple())
      .def_readonly("levels", &model::Cluster::levels)
      .def_readonly("memory_bandwidth", &model::Cluster::memory_bandwidth)
      .def_readonly("nodes", &model::Cluster::nodes)
      .def_property_readonly("ranks", [](const model::Cluster& cluster) { return model::ranks(cluster); });
}

void bind_programs(py::module_& module) {
  py::enum_<model::Stage::Kind>(module, "Kind")
      .value("LINK", model::Stage::Kind::kLink)
      .value("MEMORY", model::Stage::Kind::kMemory);
  py::class_<model::Stage>(module, "Stage")
      .def(py::init([](model::Stage::Kind kind, std::size_t level, double messages, double bytes,
                       double reduced, int senders, bool whole) {
             return model::Stage{kind, level, messages, bytes, reduced, senders, whole};
           }),
           py::arg("kind"), py::arg("level") = 0, py::arg("messages") = 0.0, py::arg("size") = 0.0,
           py::arg("reduced") = 0.0, py::arg("senders") = 0, py::arg("whole") = false)
      .def_readonly("kind", &model::Stage::kind)
      .def_readonly("level", &model::Stage::level)
      .def_readonly("messages", &model::Stage::messages)
      .def_readonly("bytes", &model::Stage::bytes)
      .def_readonly("reduced", &model::Stage::reduced)
      .def_readonly("senders", &model::Stage::senders)
      .def_readonly("whole", &model::Stage::whole)
      .def_readonly("from_one", &model::Stage::from_one);
  py::class_<model::Program>(module, "Program")
      .def(py::init([](std::vector<model::Stage> stages, int chunks) {
             return model::Program{std::move(stages), chunks};
           }),
           py::arg("stages"), py::arg("chunks") = 1)
      .def_readonly("stages", &model::Program::stages)
      .def_readonly("chunks", &model::Program::chunks);

  module.def(
      "seconds",
      [](const model::Program& program, const model::Cluster& cluster) {
        check(program, cluster);
        return model::seconds(program, cluster);
      },
      py::arg("program"), py::arg("cluster"));
  module.def(
      "with_best_chunks",
      [](const model::Program& program, const model::Cluster& cluster, int most) {
        check(program, cluster);
        return model::with_best_chunks(program, cluster, most);
      },
      py::arg("program"), py::arg("cluster"), py::arg("most") = 64);
}

void bind_collectives(py::module_& module) {
  module.def(
      "allreduce",
      [](const std::string& name, int ranks, double bytes, std::size_t level) {
        return model::allreduce(algorithm(name), ranks, bytes, level);
      },
      py::arg("algorithm"), py::arg("ranks"), py::arg("size"), py::arg("level") = 0);
  module.def("stage_of", model::stage_of, py::arg("operation"), py::arg("algorithm"), py::arg("ranks"),
             py::arg("size"));
  module.def(
      "flat",
      [](const model::Cluster& cluster, const std::string& name, double bytes) {
        return model::flat(cluster, algorithm(name), bytes);
      },
      py::arg("cluster"), py::arg("algorithm"), py::arg("size"));
  module.def(
      "over_levels",
      [](const model::Cluster& cluster, const std::string& name, double bytes) {
        return model::over_levels(cluster, algorithm(name), bytes);
      },
      py::arg("cluster"), py::arg("algorithm"), py::arg("size"));
  module.def(
      "moved_over_levels",
      [](const model::Cluster& cluster, const std::string& name, double bytes) {
        return model::over_levels(cluster, movement(name), bytes);
      },
      py::arg("cluster"), py::arg("operation"), py::arg("size"));
  module.def(
      "moved_flat",
      [](const model::Cluster& cluster, const std::string& name, double bytes, int root) {
        require(root >= 0 && root < model::ranks(cluster), "the root is none of the cluster's ranks");
        return model::flat(cluster, movement(name), bytes, root);
      },
      py::arg("cluster"), py::arg("operation"), py::arg("size"), py::arg("root") = 0);
  module.def(
      "bytes_sent",
      [](const model::Program& program, const model::Cluster& cluster) {
        check(program, cluster);
        return model::bytes_sent(program, cluster);
      },
      py::arg("program"), py::arg("cluster"));
  module.def("seconds_of_way", seconds_of_way, py::arg("levels"), py::arg("plan"), py::arg("algorithm"),
             py::arg("size"));
  module.def(
      "split",
      [](const model::Cluster& cluster, std::size_t level, const std::vector<int>& factors) {
        require(level < cluster.levels.size(), "the level is none of the cluster's");
        int product = 1;
        for (const int factor : factors) product *= factor;
        require(product == cluster.levels[level].parts,
                "the factors' product is not the level's number of parts");
        return model::split(cluster, level, factors);
      },
      py::arg("cluster"), py::arg("level"), py::arg("factors"));
}

void bind_techniques(py::module_& module) {
  using model::Payload, model::Cluster;
  module.def(
      "dense",
      [](const Cluster& cluster, double bytes, double element, double wire_bytes) {
        return model::dense(cluster, {bytes, element}, wire_bytes);
      },
      py::arg("cluster"), py::arg("size"), py::arg("element") = 4.0, py::arg("wire") = 4.0);
  module.def(
      "csc",
      [](const Cluster& cluster, double bytes, double element, double keep, double chunk_elements,
         double wire_bytes) {
        require(keep > 0 && keep <= 1 && chunk_elements >= 1, "keep or chunk_elements is out of range");
        return model::csc(cluster, {bytes, element}, {keep, chunk_elements, wire_bytes});
      },
      py::arg("cluster"), py::arg("size"), py::arg("element") = 4.0, py::arg("keep") = 0.1,
      py::arg("chunk_elements") = 32768.0, py::arg("wire") = 4.0);
  module.def(
      "top_k",
      [](const Cluster& cluster, double bytes, double element, double density, double value, double index) {
        require(density > 0 && density <= 1, "density is out of range");
        return model::top_k(cluster, {bytes, element}, {density, value, index});
      },
      py::arg("cluster"), py::arg("size"), py::arg("element") = 4.0, py::arg("density") = 0.01,
      py::arg("value") = 4.0, py::arg("index") = 4.0);
  module.def(
      "power_sgd",
      [](const Cluster& cluster, double bytes, double element, double rank, double rows, double columns) {
        return model::power_sgd(cluster, {bytes, element}, {rank, rows, columns});
      },
      py::arg("cluster"), py::arg("size"), py::arg("element") = 4.0, py::arg("rank") = 2.0,
      py::arg("rows") = 0.0, py::arg("columns") = 0.0);
  module.def(
      "quantised",
      [](const Cluster& cluster, double bytes, double element) {
        return model::quantised(cluster, {bytes, element});
      },
      py::arg("cluster"), py::arg("size"), py::arg("element") = 4.0);
  const auto plain = [&module](const char* name, model::Program (*function)(const Cluster&, const Payload&)) {
    module.def(
        name,
        [function](const Cluster& cluster, double bytes) {
          return function(cluster, {bytes, 4});
        },
        py::arg("cluster"), py::arg("size"));
  };
  plain("average", model::average);
  plain("daso_transfer", model::daso_transfer);
  plain("within_node", model::within_node);
}

void bind_steps(py::module_& module) {
  py::class_<model::Outcome>(module, "Outcome")
      .def_readonly("seconds", &model::Outcome::seconds)
      .def_readonly("exposed", &model::Outcome::exposed)
      .def_readonly("step_ends", &model::Outcome::step_ends)
      .def_readonly("bytes", &model::Outcome::bytes)
      .def_readonly("busy", &model::Outcome::busy);
  module.def(
      "simulate",
      [](const model::Cluster& cluster, double forward, double backward, double update,
         const std::vector<std::pair<double, model::Program>>& buckets, double overhead,
         const std::optional<model::Program>& transfer, int every, int wait, int steps, double jitter) {
        model::Job job{.cluster = cluster, .forward = forward, .backward = backward, .update = update};
        for (const auto& [ready, program] : buckets) job.buckets.push_back({ready, program});
        job.overhead = overhead;
        if (transfer) job.transfer = {every, wait, *transfer};
        job.steps = steps;
        job.jitter = jitter;
        return checked_simulation(job);
      },
      py::arg("cluster"), py::arg("forward"), py::arg("backward"), py::arg("update"), py::arg("buckets"),
      py::kw_only(), py::arg("overhead") = 0.0, py::arg("transfer") = std::nullopt, py::arg("every") = 0,
      py::arg("wait") = 0, py::arg("steps") = 1, py::arg("jitter") = 0.0);
}

}  // namespace
}  // namespace roundelay::bindings

PYBIND11_MODULE(_model, module) {
  module.doc() = "Roundelay's cost model and simulator; times in seconds, sizes in bytes.";
  roundelay::bindings::bind_cluster(module);
  roundelay::bindings::bind_programs(module);
  roundelay::bindings::bind_collectives(module);
  roundelay::bindings::bind_techniques(module);
  roundelay::bindings::bind_steps(module);
}
