package outbox

func (t *table) row(e *Event, traceparent, tracestate string) (row, *ValidationError) {
	return row{}, nil
}
