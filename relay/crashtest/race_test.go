//go:build unix && race

package crashtest

const raceDetector = true
