package good

import "testing"

func TestPasses(t *testing.T) { t.Log("said by a test that passed") }

func TestSkipped(t *testing.T) { t.Skip("set SOME_SERVER to run this") }

func TestSkippedSilently(t *testing.T) { t.SkipNow() }
