package kafka

import "errors"

// member is the membership under which offsets are committed.
type member struct {
	group, id, instance string
	generation          int32
}

// errNotOwner: a lane is not this relay's.
var errNotOwner = errors.New("the lane is not this relay's")
