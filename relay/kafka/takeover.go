package kafka

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/relay"
)

// patientFor is how long a relay that is a member may take to end the transactions of lanes that it gave up.
const patientFor = time.Second

// barrier ends what earlier owners of the lanes have open and says what they left, with the ends of the lanes'
// logs. After it no transaction that another relay began can commit for these lanes.
func (g *Group) barrier(ctx context.Context, lanes []int32) (taken []relay.TakenLane, ends []int64, err error) {
	noted, err := g.settled(ctx, lanes)
	if err != nil {
		return nil, nil, err
	}
	logEnds, err := g.ends(ctx, lanes, toTheEnd)
	if err != nil {
		return nil, nil, err
	}
	taken, ends = make([]relay.TakenLane, len(lanes)), make([]int64, len(lanes))
	damaged := make([]error, len(lanes))
	var spans []span
	for i, lane := range lanes {
		n := noted[lane]
		listed, err := n.note.sent()
		if err != nil {
			damaged[i] = unreadable(lane, "the metadata of its offset", err)
		}
		taken[i], ends[i] = relay.TakenLane{Lane: lane, Low: n.note.Low, Sent: listed}, logEnds[lane].offset
		if n.offset >= 0 {
			spans = append(spans, span{lane, n.offset, ends[i], func(r *kgo.Record) {
				rows, err := decodeProgress(r.Value)
				if err != nil && damaged[i] == nil {
					damaged[i] = unreadable(lane, fmt.Sprint("offset ", r.Offset), err)
				}
				taken[i].Sent = append(taken[i].Sent, rows...)
			}})
		}
	}
	if err := g.read(ctx, spans); err != nil {
		return nil, nil, err
	}
	err = errors.Join(damaged...)
	if setup := relay.AsSetup(err); setup != nil {
		g.fail(setup)
		return nil, nil, setup
	}
	return taken, ends, err
}

// settled returns what is noted of each lane once no earlier owner can change it. Owners that are no members any
// more have their transactions ended; others are given a moment to do it themselves.
func (g *Group) settled(ctx context.Context, lanes []int32) (map[int32]left, error) {
	for began := time.Now(); ; {
		now, err := g.offsetFetch(ctx, lanes, true)
		unstable := errors.Is(err, errUnstable)
		if unstable {
			now, err = g.offsetFetch(ctx, lanes, false) // tells whose transactions those are
		}
		if err != nil {
			return nil, err
		}
		by := make(map[int32]left, len(now))
		for _, l := range now {
			if err := g.readable(l); err != nil {
				g.fail(err)
				return nil, err
			}
			by[l.lane] = l
		}
		if err := g.fenceDead(ctx, now); err != nil || !unstable {
			return by, err
		}
		if time.Since(began) > patientFor {
			for _, owner := range owners(now) {
				if err := g.fence(ctx, owner.Run); err != nil {
					return nil, err
				}
			}
			began = time.Now()
		}
		if err := rest(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// owners lists who had the lanes and sent in transactions, each run once.
func owners(ls []left) (notes []note) {
	for _, l := range ls {
		known := slices.ContainsFunc(notes, func(n note) bool { return n.Run == l.note.Run })
		if l.note.Run != "" && l.note.Flows > 0 && !known {
			notes = append(notes, l.note)
		}
	}
	return notes
}

// fenceDead ends the transactions of owners that are no members of the group any more: readers of committed
// records would wait for the transaction's timeout otherwise.
func (g *Group) fenceDead(ctx context.Context, noted []left) error {
	suspects := slices.DeleteFunc(owners(noted), func(n note) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return n.Run == g.runID || g.fenced[n.Run]
	})
	if len(suspects) == 0 {
		return nil
	}
	present, err := describeMembers(ctx, g.lend.current().Client, g.topic)
	if err != nil {
		return err
	}
	for _, n := range suspects {
		if present.has(n) {
			continue
		}
		if err := g.fence(ctx, n.Run); err != nil {
			return err
		}
		g.mu.Lock()
		g.fenced[n.Run] = true
		g.mu.Unlock()
	}
	return nil
}

// fenceStrangers ends open transactions of runs that are no members, whether they were ever noted as owners or not:
// a relay that died before it was noted may have left one.
func (g *Group) fenceStrangers(ctx context.Context) error {
	noted, err := g.offsetFetch(ctx, allLanes(g.o.Lanes), false)
	if err != nil {
		return err
	}
	prefix := g.topic + "/"
	list, err := kadm.NewClient(g.lend.current().Client).ListTransactionsByTxPattern(ctx, nil, []string{"Ongoing"}, regexp.QuoteMeta(prefix)+".*")
	if err != nil {
		return fmt.Errorf("list the open transactions: %w", err)
	}
	for _, id := range list.TransactionalIDs() {
		if rest, ours := strings.CutPrefix(id, prefix); ours {
			run, _, _ := strings.Cut(rest, "/")
			noted = append(noted, left{note: note{Run: run, Flows: 1}}) // behind what it noted itself, if it did
		}
	}
	return g.fenceDead(ctx, noted)
}

// fence takes over every transactional id of a run: open transactions end, and what the run had sent and the
// network delivers only now is refused. Were ids left out that have nothing open, such a late record could open a
// transaction that nobody ends, and readers of committed records would wait for its timeout.
func (g *Group) fence(ctx context.Context, run string) error {
	if run == "" || run == g.runID {
		return nil
	}
	c := g.lend.current().Client
	prefix := g.topic + "/" + run + "/"
	// Brokers before 4.1 do not know patterns and list all.
	list, err := kadm.NewClient(c).ListTransactionsByTxPattern(ctx, nil, nil, regexp.QuoteMeta(prefix)+".*")
	if err != nil {
		return fmt.Errorf("list the transactions of relay run %s: %w", run, err)
	}
	ids := slices.DeleteFunc(list.TransactionalIDs(), func(id string) bool { return !strings.HasPrefix(id, prefix) })
	var all errgroup.Group
	all.SetLimit(16)
	for _, id := range ids {
		all.Go(func() error { return initProducer(ctx, c, id) })
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("end the transactions of relay run %s: %w", run, err)
	}
	open := 0
	for _, id := range ids {
		if state := list[id].State; state == "Ongoing" || strings.HasPrefix(state, "Prepare") {
			open++
		}
	}
	if open > 0 {
		g.log.Info("ended the open transactions of a relay that is gone", "run", run, "transactions", open)
	} else {
		g.log.Debug("a relay that is gone left no transaction open", "run", run, "transactional_ids", len(ids))
	}
	return nil
}

// initProducer takes a transactional id over, which ends its open transaction; when it returns, readers of committed
// records pass.
func initProducer(ctx context.Context, c *kgo.Client, id string) error {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, int32(transactionTimeout.Milliseconds())
	for {
		resp, err := req.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(resp.ErrorCode)
		if err == nil || !errors.Is(err, kerr.ConcurrentTransactions) {
			return err
		}
		if err := rest(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
