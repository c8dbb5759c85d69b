// topk over inproc fabrics of several nodes: what it chooses, sends and keeps, against a slow model and the
// dense allreduce.
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/cpp/contract/levels_world.h"
#include "tests/cpp/unit/top_k_members.h"

namespace roundelay::compress::top_k {
namespace {

using collective::Reduction;

constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr std::array kShapes = {Shape{1, 1}, Shape{1, 2}, Shape{1, 3}, Shape{2, 1},
                                Shape{3, 1}, Shape{2, 2}, Shape{3, 2}, Shape{2, 4}};

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
  }
  require_as(model, group);
}

TEST_CASE("topk is its slow model on whole numbers, and nothing is lost", "[technique][topk]") {
  std::mt19937 random(1);
  for (int round = 0; round < 48; ++round) {
    Model model = some_model(random, kShapes[static_cast<std::size_t>(round) % kShapes.size()]);
    model.average = model.average && model.shape.size() != 3 && model.shape.size() != 6;
    const DType dtype = random() % 3 == 0 ? DType::kFloat64 : DType::kFloat32;
    const TechniquePtr technique = make(model.text() + (round % 2 == 0 ? ",index_bits=16" : ""));
    NodeMembers group(model.shape);
    set_up(group, *technique, model, dtype);
    std::vector<double> balance(model.count);
    for (int step = 0; step < 50; ++step) {
      INFO(technique->text() << " on " << model.shape.nodes << " nodes of " << model.shape.members << ", "
                             << name_of(dtype) << ", step " << step);
      const Gradients gradients = some_gradients(model, 100, random);
      step_or_flush(group, *technique, model, gradients, random() % 12 == 0);
      std::vector<double> left(model.count);
      const double scale = model.average ? model.shape.size() : 1;
      for (std::size_t i = 0; i < model.count; ++i) {
        for (const auto& of_rank : gradients) balance[i] += of_rank[i];
        balance[i] -= model.result[i] * scale;
        for (const auto& of_rank : model.residual) left[i] += of_rank[i] * model.inside();
      }
      REQUIRE(balance == left);
    }
  }
}

TEST_CASE("topk with local momentum is its slow model", "[technique][topk]") {
  std::mt19937 random(2);
  for (int round = 0; round < 32; ++round) {
    Model model = some_model(random, kShapes[static_cast<std::size_t>(round) % kShapes.size()], 0.5);
    model.average = false;
    const TechniquePtr technique = make(model.text());
    NodeMembers group(model.shape);
    set_up(group, *technique, model, DType::kFloat32);
    for (int step = 0; step < 8; ++step) {  // later, fp32 would round
      INFO(technique->text() << ", step " << step);
      step_or_flush(group, *technique, model, some_gradients(model, 7, random), step == 6);
    }
  }
}

TEST_CASE("MSTopK loses nothing, and ranks have the same bits", "[technique][topk]") {
  std::mt19937 random(3);
  for (const std::string seed : {"0", "7"}) {
    for (const Shape shape : {Shape{2, 2}, Shape{3, 1}, Shape{1, 2}}) {
      Model model = some_model(random, shape);
      model.average = false;
      const std::string text = model.text();
      const TechniquePtr technique =
          make(text.substr(0, text.rfind(",select")) + ",samplings=3,select=mstopk,seed=" + seed);
      NodeMembers group(shape);
      set_up(group, *technique, model, DType::kFloat32);
      std::vector<double> balance(model.count);
      for (int step = 0; step < 50; ++step) {
        const Gradients gradients = some_gradients(model, 100, random);
        bring(group, gradients);
        group.run(*technique);
        require_alike(group);
        const std::vector<double> result = elements(*group.members.front());
        std::vector<double> left(model.count);
        for (std::size_t m = 0; m < group.members.size(); ++m) {
          const std::vector<double> of_member = kept(*group.members[m], model.shard_of_rank(m));
          for (std::size_t i = 0; i < model.count; ++i) left[i] += of_member[i];
        }
        for (std::size_t i = 0; i < model.count; ++i) {
          for (const auto& of_rank : gradients) balance[i] += of_rank[i];
          balance[i] -= result[i];
        }
        REQUIRE(balance == left);
      }
    }
  }
}

TEST_CASE("with density=1, topk has the bits of a dense allreduce", "[technique][topk]") {
  std::mt19937 random(4);
  for (std::size_t round = 0; round < 4 * kShapes.size(); ++round) {
    const DType dtype = kFloating[round % kFloating.size()];
    const Shape shape = kShapes[round / kFloating.size()];
    Model model = some_model(random, shape);
    model.average = true;
    model.density = 1;
    const TechniquePtr technique = make(model.text());
    NodeMembers sparsely(shape), densely(shape);
    set_up(sparsely, *technique, model, dtype);
    set_up(densely, *technique, model, dtype);
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
    }
  }
}

TEST_CASE("a prescale acts on what is sent, once", "[technique][topk]") {
  for (const Shape shape : {Shape{1, 2}, Shape{2, 2}, Shape{2, 1}}) {
    const TechniquePtr technique = make("topk:density=0.5,select=radix");
    NodeMembers group(shape);
    group.set_up(*technique, {DType::kFloat32, ReduceOp::kSum, {0.5, 1}, {0.25, 1}}, 4);
    const double scale = 0.125 * shape.size();
    std::vector<double> sum(4);
    for (int step = 0; step < 4; ++step) {
      bring(group, Gradients(group.members.size(), {16, 32, 16, 32}));
      group.run(*technique);
      require_alike(group);
      const std::vector<double> result = elements(*group.members.front());
      for (std::size_t i = 0; i < 4; ++i) sum[i] += result[i];
    }
    bring(group, Gradients(group.members.size(), {0, 0, 0, 0}));
    group.run_dense(technique.get());
    const std::vector<double> last = elements(*group.members.front());
    for (std::size_t i = 0; i < 4; ++i) CHECK(sum[i] + last[i] == scale * 4 * (i % 2 == 0 ? 16 : 32));
  }
}

TEST_CASE("half types: what the rounding loses stays in the residual", "[technique][topk]") {
  std::mt19937 random(5);
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    for (const bool on_wire : {true, false}) {  // of fp32 elements; else of the bucket
      const std::string wire = half == DType::kFloat16 ? ",wire=fp16" : ",wire=bf16";
      const TechniquePtr technique = make("topk:density=0.25,dense=1,select=radix" + (on_wire ? wire : ""));
      Model model;
      model.shape = {2, 1};
      model.parameters = {{0, 500}, {512, 30}, {544, 456}};
      model.count = 1000;
      NodeMembers group(model.shape);
      const DType dtype = on_wire ? DType::kFloat32 : half;
      set_up(group, *technique, model, dtype);
      std::vector<double> came(model.count), sent(model.count);
      bool rounded = false;
      for (int step = 0; step < 30; ++step) {
        Gradients gradients(2, std::vector<double>(model.count));
        for (std::size_t i = 0; i < model.count; ++i) {
          gradients[0][i] = std::ldexp(static_cast<double>(128 + random() % 128), step % 3 == 0 ? -7 : -9);
          came[i] += gradients[0][i];
        }
        bring(group, gradients);  // those of the other node are zero, so that sums need no rounding
        group.run(*technique);
        const std::vector<double> result = elements(*group.members[0]);
        const std::vector<double> left = kept(*group.members[0], {0, model.count});
        for (std::size_t i = 0; i < model.count; ++i) {
          std::array<std::byte, 2> as_half{};
          reference::write(half, as_half.data(), result[i]);
          REQUIRE(reference::read(half, as_half.data()) == result[i]);  // it came through that type
          sent[i] += result[i];
          rounded = rounded || (result[i] != 0 && left[i] != 0);
          if (i < 500 || i >= 544) REQUIRE(sent[i] + left[i] == came[i]);
        }
      }
      CHECK(rounded);
    }
  }
}

TEST_CASE("between nodes go (m-1) times the density's pairs, and the dense elements", "[technique][topk]") {
  for (const Shape shape : {Shape{2, 1}, Shape{4, 1}, Shape{2, 2}, Shape{3, 2}}) {
    for (const double density : {0.001, 0.01, 0.1, 0.5}) {
      for (const auto& [more, pair, value] :
           {std::tuple("", 8, 4), std::tuple(",index_bits=16", 6, 4), std::tuple(",wire=bf16", 6, 2),
            std::tuple(",index_bits=16,wire=fp16", 4, 2)}) {
        Model model;
        model.shape = shape;
        model.parameters = {{0, 600000}, {600000, 500}, {600512, 41}};
        model.count = 600553;
        const TechniquePtr technique = make("topk:dense=1,density=" + std::to_string(density) + more);
        NodeMembers group(shape);
        set_up(group, *technique, model, DType::kFloat32);
        group.run(*technique);
        std::size_t sent = 0;
        for (auto& member : group.members) sent += member->wire_bytes;
        INFO(technique->text() << " on " << shape.nodes << " nodes of " << shape.members);
        const double least = shape.nodes * (shape.nodes - 1) * (density * 600041 * pair + 500.0 * value);
        REQUIRE(static_cast<double>(sent) >= least * 0.99);
        REQUIRE(static_cast<double>(sent) <= least * 1.02);
      }
    }
  }
}

TEST_CASE("nodes of different sizes send as much as each other", "[technique][topk]") {
  for (const auto& shape :
       {contract::one_and_three(), contract::two_and_four(), contract::three_and_four()}) {
    INFO(shape.name);
    Model model;
    model.parameters = {{0, 600000}, {600000, 500}};
    model.count = 600500;
    const TechniquePtr technique = make("topk:dense=1,density=0.01");
    NodeMembers group(shape.tree);
    set_up(group, *technique, model, DType::kFloat32);
    group.run(*technique);
    for (const std::vector<int>& ranks : shape.tree.front()) {
      std::size_t sent = 0;
      for (const int rank : ranks) sent += group.members[static_cast<std::size_t>(rank)]->wire_bytes;
      CHECK(static_cast<double>(sent) == Approx(0.01 * 600000 * 8 + 500.0 * 4).epsilon(0.01));
    }
  }
}

TEST_CASE("an overflow in a node is a NaN on all ranks, and the next run is clean", "[technique][topk]") {
  std::mt19937 random(6);
  const std::string more = GENERATE("", ",select=radix", ",wire=bf16", ",momentum=0.5", ",index_bits=16");
  const std::string density = GENERATE("0.125", "0.0000001");  // the latter sends nothing
  const TechniquePtr technique = make("topk:dense=1,density=" + density + more);
  Model model;
  model.parameters = {{16, 480}, {512, 30}, {544, 400}};
  model.count = 1000;
  for (const Shape shape : {Shape{2, 2}, Shape{1, 3}, Shape{3, 1}}) {
    model.shape = shape;
    for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      for (const std::size_t at : {std::size_t{16}, std::size_t{520}, std::size_t{911}}) {
        NodeMembers group(shape);
        set_up(group, *technique, model, DType::kFloat32);
        for (int step = 0; step < 5; ++step) {
          Gradients gradients = some_gradients(model, 10, random);
          if (step == 3) gradients[1][at] = bad;
          bring(group, gradients);
          group.run(*technique);
          INFO(technique->text() << ", step " << step << ", element " << at);
          for (std::size_t m = 0; m < group.members.size(); ++m) {
            const TechniqueMember& member = *group.members[m];
            REQUIRE(std::memcmp(member.bytes.data(), group.members[0]->bytes.data(), member.bytes.size()) ==
                    0);
            bool found = false;
            for (const double one : elements(member)) found = found || !std::isfinite(one);
            REQUIRE(found == (step == 3));
            const auto left = kept(member, model.shard_of_rank(m));
            REQUIRE(std::all_of(left.begin(), left.end(), [](double one) { return std::isfinite(one); }));
          }
        }
      }
    }
  }
}

TEST_CASE("the buckets and shards of a run send density of all elements, within one", "[technique][topk]") {
  std::mt19937 random(7);
  for (const double density : {0.001, 0.01, 0.1, 0.3}) {
    for (std::uint64_t run = 0; run < 40; ++run) {
      Options options;
      options.share = share_of(density);
      const int members = 1 + static_cast<int>(run % 5);
      std::size_t sent = 0;
      for (int bucket = 0; bucket < 6; ++bucket) {
        const std::size_t count = 1 + random() % 1000;
        const BucketShape shape{count, DType::kFloat32, {}};
        for (int index = 0; index < members; ++index) {
          const RunPlan plan = plan_of(options, shape, {index, members}, run);
          REQUIRE(plan.chosen <= plan.lossy);
          sent += plan.chosen;
        }
        options.before += count;
      }
      REQUIRE(std::abs(static_cast<double>(sent) - density * static_cast<double>(options.before)) <
              1.0 + 1e-5);
    }
  }
}

TEST_CASE("topk says which buckets it cannot serve, and what it keeps", "[technique][topk]") {
  const std::vector<Slice> parameters(3);
  CHECK(make("topk:dense=1+3")
            ->check({10, DType::kFloat32, parameters})
            .message()
            .ends_with("': the bucket has 3 parameters, and no parameter 3"));
  CHECK(make("topk")->check({10, DType::kInt32, parameters}).message() ==
        "technique 'topk' needs floating gradients, not int32");
  CHECK(make("topk")
            ->check({std::size_t{1} << 32, DType::kFloat32, parameters})
            .message()
            .ends_with("the bucket has 4294967296 elements"));
  const std::array levels = {4, 2};
  CHECK(make("topk")->state_bytes(10, DType::kBFloat16, levels) == 12);
  CHECK(make("topk:momentum=0.9")->kept_numbers(10, levels) == 6);
  CHECK(make("topk")->kept_numbers(10, {}) == 10);
}

}  // namespace
}  // namespace roundelay::compress::top_k
