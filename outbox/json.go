package outbox

type jsonLimits struct{}

func jsonLimitsOf(Dialect, ColumnType) jsonLimits { return jsonLimits{} }
