package ent

// The feature sql/execquery gives ent's transaction the method ExecContext, which the writer needs.
//go:generate go run -mod=mod entgo.io/ent/cmd/ent generate --feature sql/execquery ./schema
