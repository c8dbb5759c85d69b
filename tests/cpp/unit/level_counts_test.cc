// The text of ROUNDELAY_TOPOLOGY.
#include "base/level_counts.h"

#include <string>
#include <vector>

#include "tests/cpp/catch.h"

namespace roundelay {
namespace {

TEST_CASE("counts from outside in", "[level_counts]") {
  const auto counts = LevelCounts::parse("pod=3,top_rack=2,node=16");
  REQUIRE(counts.has_value());
  CHECK(counts->levels == std::vector<LevelCount>{{"pod", 3}, {"top_rack", 2}, {"node", 16}});
  CHECK(counts->nodes() == 96);
  CHECK(counts->text() == "pod=3,top_rack=2,node=16");
  CHECK(LevelCounts::parse("node=1")->nodes() == 1);
  CHECK(LevelCounts::parse("rack=4096,node=4096")->nodes() == std::size_t{1} << 24);

  const auto none = LevelCounts::parse("");
  REQUIRE(none.has_value());
  CHECK(none->levels.empty());
  CHECK(none->text().empty());
  CHECK(none->nodes() == 1);
}

TEST_CASE("malformed counts", "[level_counts]") {
  for (const char* const text : {"node",
                                 "node=",
                                 "=4",
                                 "node=0",
                                 "node=-1",
                                 "node=+1",
                                 "node=4x",
                                 " node=4",
                                 "node =4",
                                 "node=4,",
                                 ",node=4",
                                 "rack=2",
                                 "node=4,rack=2",
                                 "node=2,node=2",
                                 "rack=2;node=4",
                                 "Rack=2,node=4",
                                 "cluster=2,node=4",
                                 "gpu=2,node=4",
                                 "rack=4096,node=4097",
                                 "rack=0,node=4",
                                 "node=99999999999999999999",
                                 "rack=16777216,node=2",
                                 "2,4"}) {
    INFO(text);
    CHECK_FALSE(LevelCounts::parse(text).has_value());
  }
}

TEST_CASE("counts or the names of a rank's own parts", "[level_counts]") {
  const auto counts = StatedTopology::parse("rack=2,node=4");
  REQUIRE(counts.has_value());
  CHECK(counts->counts == *LevelCounts::parse("rack=2,node=4"));
  CHECK(counts->names.empty());
  CHECK(counts->text() == "rack=2,node=4");
  for (const char* const names :
       {"", "rack3", "pod1/rack3", "p/"}) {  // topology_of() refuses "p/" on all ranks
    INFO(names);
    const auto stated = StatedTopology::parse(names);
    REQUIRE(stated.has_value());
    CHECK(stated->counts.levels.empty());
    CHECK(stated->text() == names);
  }
  for (const char* const text : {"node=4,rack=2", "2,4", "rack=2", "pod1/rack=3"}) {
    INFO(text);
    CHECK_FALSE(StatedTopology::parse(text).has_value());
  }
}

}  // namespace
}  // namespace roundelay
