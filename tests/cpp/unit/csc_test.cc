// csc over the inproc fabric: what it chooses, sends and keeps, against a slow model and the dense allreduce.
#include <cmath>

#include "tests/cpp/unit/csc_members.h"

namespace roundelay::compress::csc {
namespace {

using collective::Reduction;

constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// Reduces the gradients by csc, or flushes what the group keeps. Does the same to the model, and compares.
void step_or_flush(TechniqueMembers& group, const Technique& technique, Model& model,
                   const Gradients& gradients, bool flush) {
  bring(group, gradients);
  if (flush) {
    group.run_dense(&technique);
    model.flush(gradients);
    for (auto& member : group.members)
      REQUIRE(member->state == std::vector<double>(member->state.size(), 0.0));
  } else {
    group.run(technique);
    model.step(gradients);
    require_sent(model, technique, group, size_of(group.members.front()->bucket.reduction.dtype));
  }
  require_as(model, group);
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
      step_or_flush(group, *technique, model, gradients, random() % 12 == 0);
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
      step_or_flush(group, *technique, model, gradients, false);
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
        REQUIRE(member->workspace.most_bytes <= 64 * sizeof(float));
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
      step_or_flush(group, *technique, model, gradients, step % 5 == 4);
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
  CHECK(make("csc")->kept_numbers(10, {}) == 10);
  CHECK(make("csc:momentum=0.9")->kept_numbers(10, {}) == 20);
}

}  // namespace
}  // namespace roundelay::compress::csc
