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
	logEnds, err := kadm.NewClient(g.lend.current().Client).ListEndOffsets(ctx, g.topic)
	if err != nil {
		return nil, nil, fmt.Errorf("read the lanes' ends: %w", err)
	}
	for _, lane := range lanes {
		n := noted[lane]
		end, ok := logEnds.Lookup(g.topic, lane)
		if !ok || end.Err != nil {
			return nil, nil, fmt.Errorf("read the end of lane %d: %w", lane, errors.Join(end.Err, errNoAnswer))
		}
		t := relay.TakenLane{Lane: lane, Low: n.note.Low}
		if n.offset >= 0 {
			if t.Sent, err = g.progress(ctx, lane, n.offset, end.Offset); err != nil {
				return nil, nil, err
			}
		}
		taken, ends = append(taken, t), append(ends, end.Offset)
	}
	return taken, ends, nil
}

var errNoAnswer = errors.New("the broker did not say")

// settled returns what is noted of each lane once no earlier owner can change it. Owners that are no members any
// more have their transactions ended; others are given a moment to do it themselves.
func (g *Group) settled(ctx context.Context, lanes []int32) (map[int32]left, error) {
	now, err := g.offsetFetch(ctx, lanes, false)
	if err != nil {
		return nil, err
	}
	for _, l := range now {
		if err := g.sameTable(l.note); err != nil {
			g.fail(err)
			return nil, err
		}
	}
	if err := g.fenceDead(ctx, now); err != nil {
		return nil, err
	}
	for began := time.Now(); ; {
		stable, err := g.offsetFetch(ctx, lanes, true)
		switch {
		case err == nil:
			by := make(map[int32]left, len(stable))
			for _, l := range stable {
				by[l.lane] = l
			}
			return by, nil
		case !errors.Is(err, errUnstable):
			return nil, err
		case time.Since(began) > patientFor:
			for _, run := range runs(now) {
				if err := g.fence(ctx, run); err != nil {
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

// runs lists who owned the lanes.
func runs(ls []left) (runs []string) {
	for _, l := range ls {
		if l.note.Run != "" && l.note.Flows > 0 && !slices.Contains(runs, l.note.Run) {
			runs = append(runs, l.note.Run)
		}
	}
	return runs
}

// fenceDead ends the transactions of owners that are no members of the group any more: readers of committed
// records would wait for the transaction's timeout otherwise.
func (g *Group) fenceDead(ctx context.Context, noted []left) error {
	var suspects []string
	for _, run := range runs(noted) {
		g.mu.Lock()
		done := run == g.runID || g.fenced[run]
		g.mu.Unlock()
		if !done {
			suspects = append(suspects, run)
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	alive, err := g.members(ctx)
	if err != nil {
		return err
	}
	for _, run := range suspects {
		if alive[run] {
			continue
		}
		if err := g.fence(ctx, run); err != nil {
			return err
		}
		g.mu.Lock()
		g.fenced[run] = true
		g.mu.Unlock()
	}
	return nil
}

// members lists the runs of the group's members: each is its client's id.
func (g *Group) members(ctx context.Context) (map[string]bool, error) {
	groups, err := kadm.NewClient(g.lend.current().Client).DescribeGroups(ctx, g.topic)
	if err != nil {
		return nil, fmt.Errorf("list the group's members: %w", err)
	}
	alive := map[string]bool{}
	for _, m := range groups[g.topic].Members {
		alive[m.ClientID] = true
	}
	return alive, groups[g.topic].Err
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
	all.SetLimit(8)
	for _, id := range ids {
		all.Go(func() error { return initProducer(ctx, c, id) })
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("end the transactions of relay run %s: %w", run, err)
	}
	g.log.Info("ended the transactions of an owner that is gone", "run", run, "transactional_ids", len(ids))
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

// progress reads what was sent of a lane and is perhaps not marked.
func (g *Group) progress(ctx context.Context, lane int32, from, to int64) (sent []relay.SentRow, err error) {
	var damaged error
	err = g.readCommitted(ctx, lane, from, to, func(r *kgo.Record) {
		rows, err := decodeProgress(r.Value)
		if err != nil && r.Value != nil {
			damaged = fmt.Errorf("lane %d, offset %d: %w", lane, r.Offset, err)
		}
		sent = append(sent, rows...)
	})
	return sent, errors.Join(err, damaged)
}
