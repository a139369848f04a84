//go:build unix && !race

package crashtest

const raceDetector = false
