package outbox

func (t *table) duplicate(err error, rows []row) error { return nil }
