package relay

import "time"

// Hooks observes the relay: metrics hang here. Methods are called from the relay's goroutines, must
// return soon and must not keep the event.
type Hooks interface {
	// Sent is called for each acknowledged event. commitToAck is 0 when the table has no created_at.
	Sent(e *Event, r Receipt, commitToAck, sendToAck time.Duration)
	// Failed is called for each event that was not acknowledged and says what it becomes: StateFailed,
	// StateDead, or StateNew when it costs the event nothing.
	Failed(e *Event, f *Failure, next State)
	// Lost is called with the number of marks that were not applied because the rows had changed.
	Lost(n int)
	// Reclaimed is called with the number of abandoned rows taken over.
	Reclaimed(n int)
	// LanesOwned is called with the number of lanes that are this relay's after a change.
	LanesOwned(n int)
	// Fenced is called when lanes were lost without having been given up, with their number.
	Fenced(lanes int)
}

type noHooks struct{}

func (noHooks) Sent(*Event, Receipt, time.Duration, time.Duration) {}
func (noHooks) Failed(*Event, *Failure, State)                     {}
func (noHooks) Lost(int)                                           {}
func (noHooks) Reclaimed(int)                                      {}
func (noHooks) LanesOwned(int)                                     {}
func (noHooks) Fenced(int)                                         {}
