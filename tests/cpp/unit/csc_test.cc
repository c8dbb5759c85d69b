// csc over the inproc fabric: what it chooses, sends and keeps, against a slow model and the dense allreduce.
#include <cmath>
#include <cstring>
#include <random>

#include "compress/registry.h"
#include "tests/cpp/unit/csc_model.h"
#include "tests/cpp/unit/kernels_reference.h"
#include "tests/cpp/unit/technique_members.h"

namespace roundelay::compress::csc {
namespace {

using collective::Reduction;
namespace reference = kernels::reference;
using Gradients = std::vector<std::vector<double>>;

constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

std::string text_for(const Model& model) {
  std::string text = "csc:before=" + std::to_string(model.before) + ",chunk=" + std::to_string(model.chunk) +
                     ",keep=" + std::to_string(model.keep);
  for (std::size_t i = 0; i < model.dense.size(); ++i)
    text += (i == 0 ? ",dense=" : "+") + std::to_string(model.dense[i]);
  if (model.previous) text += ",norms=previous";
  if (model.momentum != 0) text += ",momentum=" + std::to_string(model.momentum);
  if (model.nesterov) text += ",nesterov=1";
  return text;
}

TechniquePtr make(const std::string& text) {
  auto made = make_technique(text);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return std::move(*made);
}

// Some parameters with the gaps of a pool, some of which are dense.
void lay_out(Model& model, std::mt19937& random) {
  std::size_t at = 0;
  for (std::size_t n = 1 + random() % 10; n > 0; --n) {
    const std::size_t count = random() % 2 == 0 ? 1 + random() % 20 : 1 + random() % 400;
    if (random() % 4 == 0) model.dense.push_back(static_cast<std::uint32_t>(model.parameters.size()));
    model.parameters.push_back({at, count});
    model.count = at + count;
    at += (count + 15) / 16 * 16;
  }
}

Model some_model(std::mt19937& random, double momentum = 0) {
  Model model;
  lay_out(model, random);
  model.chunk = 1 + random() % 100;
  model.keep = std::array{0.015625, 0.125, 0.25, 0.5, 0.75, 1.0}[random() % 6];
  model.before = random() % 100;
  model.previous = random() % 2 == 0;
  model.momentum = momentum;
  model.nesterov = momentum != 0 && random() % 2 == 0;
  return model;
}

// Whole numbers; gaps between parameters are zero, as in a pool.
Gradients some_gradients(const Model& model, int ranks, int most, std::mt19937& random) {
  Gradients gradients(static_cast<std::size_t>(ranks), std::vector<double>(model.count));
  for (auto& of_rank : gradients) {
    for (const Slice& slice : model.parameters) {
      for (std::size_t i = slice.first; i < slice.first + slice.count; ++i)
        of_rank[i] = static_cast<int>(random() % static_cast<unsigned>(2 * most + 1)) - most;
    }
  }
  return gradients;
}

void set_up(TechniqueMembers& group, const Technique& technique, const Model& model, DType dtype) {
  group.set_up(technique, {dtype, ReduceOp::kSum, {}, {}}, model.count);
  for (auto& member : group.members) member->bucket.parameters = model.parameters;
}

void bring(TechniqueMembers& group, const Gradients& gradients) {
  for (std::size_t m = 0; m < gradients.size(); ++m) {
    TechniqueMember& member = *group.members[m];
    const DType dtype = member.bucket.reduction.dtype;
    for (std::size_t i = 0; i < gradients[m].size(); ++i)
      reference::write(dtype, member.bytes.data() + i * size_of(dtype), gradients[m][i]);
  }
}

double element(const TechniqueMember& member, std::size_t i) {
  const DType dtype = member.bucket.reduction.dtype;
  return reference::read(dtype, member.bytes.data() + i * size_of(dtype));
}

double kept(const TechniqueMember& member, std::size_t i) {
  const DType type = kernels::residual_type(member.bucket.reduction.dtype);
  return reference::read(type, member.bucket.state.data() + i * size_of(type));
}

std::vector<std::uint32_t> sent_by(const Technique& technique, const TechniqueMember& member) {
  const Bucket& bucket = member.bucket;
  const auto sent = technique.sent({bucket.count, bucket.reduction.dtype, bucket.parameters}, bucket.run - 1);
  REQUIRE(sent.has_value());
  const auto* const first = reinterpret_cast<const std::uint32_t*>(bucket.state.data() + sent->indices_at);
  return {first, first + sent->indices};
}

void require_as(const Model& model, const TechniqueMembers& group) {
  for (std::size_t m = 0; m < group.members.size(); ++m) {
    REQUIRE(group.members[m]->bytes == group.members.front()->bytes);
    std::vector<double> residual(model.count);
    for (std::size_t i = 0; i < model.count; ++i) residual[i] = kept(*group.members[m], i);
    REQUIRE(residual == model.residual[m]);
  }
  std::vector<double> result(model.count);
  for (std::size_t i = 0; i < model.count; ++i) result[i] = element(*group.members[0], i);
  REQUIRE(result == model.result);
}

void require_sent(const Model& model, const Technique& technique, const TechniqueMembers& group,
                  std::size_t element_bytes) {
  for (const auto& member : group.members) {
    REQUIRE(sent_by(technique, *member) == model.chosen);
    REQUIRE(member->called_bytes == model.sent_elements * element_bytes + model.norms_sent * sizeof(float));
  }
}

TEST_CASE("csc is its slow model on whole numbers, and nothing is lost", "[technique][csc]") {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const int ranks = 1 + round % 4;
    Model model = some_model(random);
    const DType dtype = random() % 3 == 0 ? DType::kFloat64 : DType::kFloat32;
    if (round % 5 == 0) model.chunk = model.count + random() % 100;
    const TechniquePtr technique = make(text_for(model));
    TechniqueMembers group(ranks);
    set_up(group, *technique, model, dtype);
    model.begin(ranks);
    std::vector<double> came(model.count), sent(model.count), balance(model.count);
    for (int step = 0; step < 50; ++step) {
      INFO(technique->text() << " on " << ranks << " ranks, " << name_of(dtype) << ", step " << step);
      const Gradients gradients = some_gradients(model, ranks, 100, random);
      bring(group, gradients);
      if (random() % 12 == 0) {
        group.run_dense(technique.get());
        model.flush(gradients);
        for (auto& member : group.members)
          REQUIRE(member->state == std::vector<double>(member->state.size(), 0.0));
      } else {
        group.run(*technique);
        model.step(gradients);
        require_sent(model, *technique, group, size_of(dtype));
      }
      require_as(model, group);
      for (std::size_t i = 0; i < model.count; ++i) {
        for (const auto& of_rank : gradients) came[i] += of_rank[i];
        sent[i] += element(*group.members[0], i);
        balance[i] = came[i] - sent[i];
        for (auto& member : group.members) balance[i] -= kept(*member, i);
      }
      REQUIRE(balance == std::vector<double>(model.count));
    }
  }
}

TEST_CASE("csc with local momentum is its slow model", "[technique][csc]") {
  std::mt19937 random(2);
  for (int round = 0; round < 40; ++round) {
    const int ranks = 1 + round % 4;
    Model model = some_model(random, 0.5);
    if (round % 5 == 0) model.chunk = model.count + random() % 100;
    const TechniquePtr technique = make(text_for(model));
    TechniqueMembers group(ranks);
    set_up(group, *technique, model, DType::kFloat32);
    model.begin(ranks);
    for (int step = 0; step < 8; ++step) {  // later, fp32 would round
      INFO(technique->text() << " on " << ranks << " ranks, step " << step);
      const Gradients gradients = some_gradients(model, ranks, 7, random);
      bring(group, gradients);
      group.run(*technique);
      model.step(gradients);
      require_sent(model, *technique, group, sizeof(float));
      require_as(model, group);
    }
  }
}

TEST_CASE("with keep=1, csc has the bits of a dense allreduce", "[technique][csc]") {
  std::mt19937 random(3);
  for (int round = 0; round < 48; ++round) {
    const int ranks = 1 + round % 4;
    const DType dtype = kFloating[static_cast<std::size_t>(round / 4) % kFloating.size()];
    Model model = some_model(random);
    model.keep = 1;
    const TechniquePtr technique = make(text_for(model));
    TechniqueMembers sparsely(ranks), densely(ranks);
    const Reduction reduction{dtype, ReduceOp::kSum, {}, {1.0, ranks}};
    for (TechniqueMembers* group : {&sparsely, &densely}) {
      group->set_up(*technique, reduction, model.count);
      for (auto& member : group->members) member->bucket.parameters = model.parameters;
    }
    for (int step = 0; step < 3; ++step) {
      for (std::size_t m = 0; m < sparsely.members.size(); ++m) {
        Bytes& bytes = sparsely.members[m]->bytes;
        for (std::size_t i = 0; i < model.count; ++i) {
          const double value =
              random() % 8 == 0 ? -0.0 : std::ldexp(static_cast<double>(random()) - 2e9, -31);
          reference::write(dtype, bytes.data() + i * size_of(dtype), value);
        }
        densely.members[m]->bytes = bytes;
      }
      sparsely.run(*technique);
      densely.run_dense();
      for (std::size_t m = 0; m < sparsely.members.size(); ++m)
        REQUIRE(sparsely.members[m]->bytes == densely.members[m]->bytes);
      model.begin(ranks);
      REQUIRE(sent_by(*technique, *sparsely.members[0]).size() == model.chunks);
    }
  }
}

TEST_CASE("half types on the wire: what the rounding loses stays in the residual", "[technique][csc]") {
  std::mt19937 random(4);
  for (const std::string wire : {"fp16", "bf16"}) {
    for (const std::string keep : {"0.25", "1"}) {
      const TechniquePtr technique =
          make("csc:chunk=64,dense=1,wire=" + wire + (keep == "1" ? ",keep=1" : ",keep=0.25"));
      TechniqueMembers group(1);
      Model model;
      model.parameters = {{0, 500}, {512, 30}, {544, 456}};
      model.count = 1000;
      set_up(group, *technique, model, DType::kFloat32);
      TechniqueMember& member = *group.members.front();
      const DType type = wire == "fp16" ? DType::kFloat16 : DType::kBFloat16;
      std::vector<double> came(model.count), sent(model.count);
      bool rounded = false;
      for (int step = 0; step < 30; ++step) {
        for (std::size_t i = 0; i < model.count; ++i) {
          member.elements<float>()[i] = static_cast<float>(random() % 4097) / 1024;
          came[i] += static_cast<double>(member.elements<float>()[i]);
        }
        group.run(*technique);
        const std::size_t chosen = sent_by(*technique, member).size();
        REQUIRE(member.called_bytes ==
                (30 + std::min<std::size_t>(chosen * 64, 1000)) * 2 + 16 * sizeof(float));
        for (std::size_t i = 0; i < model.count; ++i) {
          const double result = element(member, i);
          std::array<std::byte, 2> half{};
          reference::write(type, half.data(), result);
          REQUIRE(reference::read(type, half.data()) == result);  // it came through that type
          if (i >= 512 && i < 542) {
            REQUIRE(kept(member, i) == 0);
            continue;
          }
          sent[i] += result;
          rounded = rounded || (result != 0 && kept(member, i) != 0);
          REQUIRE(sent[i] + kept(member, i) == came[i]);
        }
      }
      CHECK(rounded);
    }
  }
}

TEST_CASE("buckets of halves: what the rounding of a residual loses stays in it", "[technique][csc]") {
  std::mt19937 random(6);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const TechniquePtr technique = make("csc:chunk=100,keep=0.5");  // of one chunk, all or nothing
    Model model;
    model.parameters = {{0, 90}};
    model.count = 90;
    TechniqueMembers group(1);
    set_up(group, *technique, model, dtype);
    TechniqueMember& member = *group.members.front();
    std::vector<double> came(model.count), sent(model.count);
    bool all_went = false, rounded = false;
    for (int step = 0; step < 12; ++step) {
      for (std::size_t i = 0; i < model.count; ++i) {
        const double value = std::ldexp(static_cast<double>(128 + random() % 128), step % 3 == 0 ? -7 : -9);
        reference::write(dtype, member.bytes.data() + i * size_of(dtype), value);
        came[i] += value;
      }
      group.run(*technique);
      all_went = all_went || !sent_by(*technique, member).empty();
      for (std::size_t i = 0; i < model.count; ++i) {
        sent[i] += element(member, i);
        REQUIRE(sent[i] + kept(member, i) == came[i]);
        rounded = rounded || (element(member, i) != 0 && kept(member, i) != 0);
      }
    }
    CHECK(all_went);
    CHECK(rounded == (dtype == DType::kBFloat16));
  }
}

TEST_CASE("a chunk that is larger than the bucket costs no more than the bucket", "[technique][csc]") {
  for (const std::string more : {"", ",wire=bf16", ",momentum=0.5", ",norms=previous,momentum=0.5"}) {
    const TechniquePtr technique = make("csc:chunk=100000,keep=1" + more);
    const TechniquePtr fitting = make("csc:chunk=60,keep=1" + more);
    INFO(technique->text());
    CHECK(technique->state_bytes(60, DType::kFloat32, {}) == fitting->state_bytes(60, DType::kFloat32, {}));
    CHECK(technique->sent({60, DType::kFloat32, {}}, 0)->chunk == 60);
    const bool in_place = more.empty();
    const std::size_t bytes = more == ",wire=bf16" ? 2 : 4;
    TechniqueMembers group(2);
    Model model;
    model.parameters = {{0, 60}};
    model.count = 60;
    set_up(group, *technique, model, DType::kFloat32);
    for (int step = 0; step < 3; ++step) {
      bring(group, Gradients(2, std::vector<double>(60, 1.0)));
      group.run(*technique);
      for (auto& member : group.members) {
        REQUIRE(member->called_bytes == 60 * bytes + (in_place ? 0 : sizeof(float)));
        REQUIRE(member->stage.most_bytes <= 64 * sizeof(float));
        REQUIRE(element(*member, 59) > 0);
      }
    }
  }
}

TEST_CASE("the wire carries the chosen chunks, a norm for each chunk and the dense elements",
          "[technique][csc]") {
  for (const std::string norms : {"same", "previous"}) {
    for (const double keep : {0.01, 0.1, 0.5}) {
      for (const int ranks : {2, 3, 4}) {
        constexpr std::size_t kChunk = 16, kChunks = 40000, kDense = 9000;
        const TechniquePtr technique =
            make("csc:chunk=16,dense=1,norms=" + norms + ",keep=" + std::to_string(keep));
        Model model;
        model.parameters = {{0, kChunk * kChunks}, {kChunk * kChunks, kDense}};
        model.count = kChunk * kChunks + kDense;
        TechniqueMembers group(ranks);
        set_up(group, *technique, model, DType::kFloat32);
        for (std::uint64_t run = 0; run < 3; ++run) {
          for (auto& member : group.members) member->wire_bytes = 0;
          group.run(*technique);
          std::size_t wire = 0;
          for (auto& member : group.members) wire += member->wire_bytes;
          const std::size_t all_chunks = (model.count + kChunk - 1) / kChunk;
          const std::size_t payload =
              4 * (quota(share_of(keep), 0, kChunks, run) * kChunk + all_chunks + kDense);
          INFO(technique->text() << " on " << ranks << " ranks, run " << run);
          for (auto& member : group.members) REQUIRE(member->called_bytes == payload);
          const std::size_t others = static_cast<std::size_t>(ranks) - 1;
          REQUIRE(wire == 2 * others * payload);  // 2(m-1)/m of the payload from each of m ranks
        }
      }
    }
  }
}

bool has_nan(const TechniqueMember& member, const std::vector<Slice>& parameters) {
  for (const Slice& slice : parameters) {
    for (std::size_t i = slice.first; i < slice.first + slice.count; ++i)
      if (std::isnan(element(member, i))) return true;
  }
  return false;
}

TEST_CASE("an overflow anywhere on one rank is a NaN on all, and the next run is clean", "[technique][csc]") {
  std::mt19937 random(5);
  const std::string more =
      GENERATE("", ",norms=previous", ",wire=bf16", ",momentum=0.5", ",norms=previous,wire=fp16", ",keep=1");
  const TechniquePtr technique =
      make("csc:chunk=50" + more + (more == ",keep=1" ? "" : ",keep=0.125"));  // of 19 lossy chunks
  Model model;
  model.parameters = {{16, 480}, {512, 400}};
  model.count = 1000;
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (const std::size_t at : {std::size_t{16}, std::size_t{333}, std::size_t{911}}) {
      TechniqueMembers group(3);
      set_up(group, *technique, model, DType::kFloat32);
      for (int step = 0; step < 6; ++step) {
        Gradients gradients = some_gradients(model, 3, 10, random);
        if (step == 3) gradients[1][at] = bad;
        bring(group, gradients);
        group.run(*technique);
        INFO(technique->text() << ", step " << step << ", element " << at);
        for (auto& member : group.members) {
          REQUIRE(std::memcmp(member->bytes.data(), group.members[0]->bytes.data(), member->bytes.size()) ==
                  0);
          const bool found = has_nan(*member, model.parameters) || std::isinf(element(*member, at));
          REQUIRE(found == (step == 3));
          for (std::size_t i = 0; i < model.count; ++i) REQUIRE(std::isfinite(kept(*member, i)));
        }
      }
    }
  }
}

TEST_CASE("an overflow is seen in a run that sends no chunk, and in a dense parameter", "[technique][csc]") {
  std::mt19937 random(7);
  const std::size_t chunks = GENERATE(1U, 2U, 3U);
  const std::string more = GENERATE("", ",norms=previous", ",wire=bf16", ",momentum=0.5",
                                    ",norms=previous,wire=fp16", ",norms=previous,momentum=0.5,nesterov=1");
  const bool with_dense = GENERATE(false, true);
  Model model;
  model.parameters = {{0, 50 * chunks - 3}};
  if (with_dense) model.parameters.push_back({50 * chunks, 20});
  model.count = 50 * chunks + (with_dense ? 20 : 0);
  const TechniquePtr technique =
      make("csc:chunk=50,before=7,keep=0.125" + std::string(with_dense ? ",dense=1" : "") + more);
  bool without_chunks = false;
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (int at_step = 0; at_step < 9; ++at_step) {
      TechniqueMembers group(2);
      set_up(group, *technique, model, DType::kFloat32);
      for (int step = 0; step < 11; ++step) {
        Gradients gradients = some_gradients(model, 2, 10, random);
        const Slice where = model.parameters[with_dense && at_step % 2 == 0 ? 1 : 0];
        const std::size_t at = where.first + random() % where.count;
        if (step == at_step) gradients[1][at] = bad;
        bring(group, gradients);
        group.run(*technique);
        if (step == at_step && sent_by(*technique, *group.members[0]).empty()) without_chunks = true;
        INFO(technique->text() << ", step " << step << ", element " << at);
        for (auto& member : group.members) {
          REQUIRE(std::memcmp(member->bytes.data(), group.members[0]->bytes.data(), member->bytes.size()) ==
                  0);
          const bool found = has_nan(*member, model.parameters) || std::isinf(element(*member, at));
          REQUIRE(found == (step == at_step));
        }
      }
    }
  }
  CHECK(without_chunks);
}

TEST_CASE("finite gradients give finite results, however large their norm is", "[technique][csc]") {
  const std::string more = GENERATE("", ",norms=previous", ",momentum=0.5");
  const TechniquePtr technique = make("csc:chunk=50,keep=0.125" + more);
  Model model;
  model.parameters = {{0, 1000}};
  model.count = 1000;
  TechniqueMembers group(3);
  set_up(group, *technique, model, DType::kFloat32);
  for (int step = 0; step < 4; ++step) {
    Gradients gradients(3, std::vector<double>(1000, 1.0));
    if (step == 1) gradients[1].assign(1000, 1e38);
    bring(group, gradients);
    group.run(*technique);
    for (auto& member : group.members) {
      REQUIRE_FALSE(has_nan(*member, model.parameters));
      for (std::size_t i = 0; i < model.count; ++i) REQUIRE(std::isfinite(kept(*member, i)));
    }
  }
}

TEST_CASE("a flush clears the momentum, the norms and the indices", "[technique][csc]") {
  std::mt19937 random(8);
  for (int round = 0; round < 12; ++round) {
    Model model = some_model(random, 0.5);
    model.previous = round % 2 == 0;
    const TechniquePtr technique = make(text_for(model));
    TechniqueMembers group(2);
    set_up(group, *technique, model, DType::kFloat32);
    model.begin(2);
    for (int step = 0; step < 16; ++step) {
      INFO(technique->text() << ", step " << step);
      const Gradients gradients = some_gradients(model, 2, 7, random);
      bring(group, gradients);
      if (step % 5 == 4) {
        group.run_dense(technique.get());
        model.flush(gradients);
        for (auto& member : group.members)
          REQUIRE(member->state == std::vector<double>(member->state.size(), 0.0));
      } else {
        group.run(*technique);
        model.step(gradients);
        require_sent(model, *technique, group, sizeof(float));
      }
      require_as(model, group);
    }
  }
}

TEST_CASE("csc says which buckets it cannot serve", "[technique][csc]") {
  const std::vector<Slice> parameters(3);
  const TechniquePtr technique = make("csc:dense=1+3");
  CHECK(technique->check({10, DType::kFloat32, parameters})
            .message()
            .ends_with("': the bucket has 3 parameters, and no parameter 3"));
  CHECK(make("csc:dense=1+2")->check({10, DType::kFloat16, parameters}).ok());
  CHECK(make("csc")->check({10, DType::kInt32, parameters}).message() ==
        "technique 'csc' needs floating gradients, not int32");
  CHECK(make("csc")->kept_numbers(10) == 10);
  CHECK(make("csc:momentum=0.9")->kept_numbers(10) == 20);
}

}  // namespace
}  // namespace roundelay::compress::csc
