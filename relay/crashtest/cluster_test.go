//go:build unix

package crashtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/relay"
)

const clusterVariable = "POSTRIDER_TEST_KAFKA_CLUSTER"

// blow is something that happens to a cluster of three brokers while relays work.
type blow struct {
	name  string
	short bool // part of every run
	falls func(t *testing.T, s *servers, w *world)
}

var blows = []blow{
	{"one broker killed", true, func(t *testing.T, s *servers, w *world) {
		// The broker of the group: with it go the relays' membership and some of their transactions.
		victim := "kafka-" + string('0'+w.topics.coordinator(t, w.control()))
		s.must(t, "kill", victim)
		w.some(t, 50)
		s.must(t, "up", victim)
	}},
	{"leaders moved", true, func(t *testing.T, _ *servers, w *world) {
		for range 3 {
			w.topics.moveLeaders(t)
			w.some(t, 30)
		}
	}},
	{"all restarted, one after another", false, func(t *testing.T, s *servers, w *world) {
		for _, name := range []string{"kafka-1", "kafka-2", "kafka-3"} {
			s.must(t, "restart", name)
			w.some(t, 30)
		}
	}},
	{"all killed at once", true, func(t *testing.T, s *servers, _ *world) {
		s.must(t, "kill", "kafka-cluster")
		s.must(t, "up", "kafka-cluster")
	}},
}

var clusterSection = section{
	title: "Three brokers",
	about: "Two relays share the lanes on a cluster of three brokers with three replicas of everything, two of which must be in\n" +
		"sync, and 24 keys are written to all the while.",
	columns: []string{"delivery", "blow"},
	took:    "caught up after, at most",
}

// TestCluster lets two relays with lanes work on three brokers, with three replicas of everything, while brokers
// die and leaders move. Two replicas that are in sync are enough to go on.
func TestCluster(t *testing.T) {
	db := shared(t, postgres.variable)
	s := private(t, "kafka-cluster")
	for i, c := range clusterCases() {
		t.Run(c.delivery+"/"+c.name(), func(t *testing.T) {
			s.must(t, "up", "kafka-cluster") // whatever the last case left
			w := newWorld(t, postgres, db, s.addr[clusterVariable], settings{
				claim: relay.ClaimLanes, relays: 2, delivery: c.delivery, batch: 20, partitions: 4,
				env: []string{"POSTRIDER_RELAY_RETRY_MAX_ATTEMPTS=2"},
			})
			w.start(t)
			w.divided(t, laneCount/2, laneCount/2)
			tr := newTraffic(t, w.db, w.types...)
			tr.start(t, 1)
			w.some(t, 50)
			var longest time.Duration
			for _, b := range c.blows {
				began := time.Now()
				b.falls(t, s, w)
				lasted, took := time.Since(began), w.caughtUp(t)
				t.Logf("%s for %s: what was written meanwhile is sent %s later", b.name, lasted.Round(time.Second), took.Round(10*time.Millisecond))
				longest = max(longest, took)
			}
			for _, r := range w.relays {
				require.True(t, r.alive(), "%s ended:\n%s", r.name, r.tail(10))
			}
			r := w.over(t, tr, Rules{Ordered: true, MaxDoubles: c.doubles(w)})
			account.add(line{clusterSection, i, []string{c.delivery, c.name()}, r, w.uncommitted(t), longest})
		})
	}
}

// clusterCase is a number of blows, one after the other.
type clusterCase struct {
	delivery string
	blows    []blow
}

// clusterCases are the short blows together or, in a long run, each for itself with both deliveries.
func clusterCases() (cases []clusterCase) {
	if !long() {
		short := slices.DeleteFunc(slices.Clone(blows), func(b blow) bool { return !b.short })
		return []clusterCase{{exactlyOnce, short}}
	}
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		for _, b := range blows {
			cases = append(cases, clusterCase{delivery, []blow{b}})
		}
	}
	return cases
}

func (c clusterCase) name() string {
	names := make([]string, len(c.blows))
	for i, b := range c.blows {
		names[i] = b.name
	}
	return strings.Join(names, ", ")
}

// doubles is what relays may have in flight whenever answers are late.
func (c clusterCase) doubles(w *world) int {
	if c.delivery == exactlyOnce {
		return 0
	}
	return len(c.blows) * len(w.relays) * (3 + int(w.settings.partitions)*len(w.topics.names)) * w.settings.batch
}

// must is run, and nothing works without it.
func (s *servers) must(t *testing.T, command string, names ...string) {
	t.Helper()
	_, err := s.run(3*time.Minute, command, names...)
	require.NoError(t, err)
}

// coordinator is the broker that keeps a group.
func (k *topics) coordinator(t testing.TB, group string) int32 {
	t.Helper()
	found := k.admin.FindGroupCoordinators(t.Context(), group)
	require.NoError(t, found.Error())
	return found[group].NodeID
}

// moveLeaders makes the next replica of each partition its leader, of internal topics too, and so moves the
// coordinators of groups and transactions.
func (k *topics) moveLeaders(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	before, err := k.admin.ListTopicsWithInternal(ctx)
	require.NoError(t, err)
	var order kadm.AlterPartitionAssignmentsReq
	want := kadm.TopicsSet{}
	leader := map[string]map[int32]int32{}
	before.EachPartition(func(p kadm.PartitionDetail) {
		turned := append(slices.Clone(p.Replicas[1:]), p.Replicas[0])
		order.Assign(p.Topic, p.Partition, turned)
		want.Add(p.Topic, p.Partition)
		if leader[p.Topic] == nil {
			leader[p.Topic] = map[int32]int32{}
		}
		leader[p.Topic][p.Partition] = turned[0]
	})
	altered, err := k.admin.AlterPartitionAssignments(ctx, order)
	require.NoError(t, err)
	require.NoError(t, altered.Error())
	left := 0
	eventually(t, 30*time.Second, func() bool {
		if _, err := k.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, want); err != nil {
			return false
		}
		now, err := k.admin.ListTopicsWithInternal(ctx)
		if err != nil {
			return false
		}
		left = 0
		now.EachPartition(func(p kadm.PartitionDetail) {
			if want, known := leader[p.Topic][p.Partition]; known && p.Leader != want {
				left++
			}
		})
		return left == 0
	}, func() string { return "leaders do not move" })
}
