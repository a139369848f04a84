package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// worker is a Kafka Connect worker, asked over HTTP.
type worker struct{ url string }

// create makes a connector and returns when its task runs.
func (w worker) create(ctx context.Context, name string, config map[string]string) error {
	if err := w.ask(ctx, http.MethodPut, "/connectors/"+name+"/config", config, nil); err != nil {
		return fmt.Errorf("make the connector: %w", err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		running, err := w.running(ctx, name)
		if running || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("start the connector: no task runs after a minute")
		}
	}
}

// running tells whether a connector's task runs; an error is one that the task has ended with. Right after it was
// made, Connect does not know it yet.
func (w worker) running(ctx context.Context, name string) (bool, error) {
	var status struct {
		Tasks []struct{ State, Trace string }
	}
	if err := w.ask(ctx, http.MethodGet, "/connectors/"+name+"/status", nil, &status); err != nil {
		return false, ctx.Err()
	}
	for _, t := range status.Tasks {
		if t.State == "FAILED" {
			return false, fmt.Errorf("run the connector: %.1000s", t.Trace)
		}
	}
	return len(status.Tasks) > 0 && status.Tasks[0].State == "RUNNING", nil
}

// remove deletes a connector; its task has ended when it returns, or is about to.
func (w worker) remove(ctx context.Context, name string) error {
	return w.ask(context.WithoutCancel(ctx), http.MethodDelete, "/connectors/"+name, nil, nil)
}

// ask sends one request; anything but a 2xx is an error.
func (w worker) ask(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(w.url, "/")+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %.500s", method, path, resp.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
