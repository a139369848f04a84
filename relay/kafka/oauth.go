package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

func setEndpoint(c *Config, v string) error {
	u, err := url.Parse(v)
	if err != nil {
		return errors.New("is not an address") // the parser's text would repeat it, user and password included
	}
	switch {
	case u.Scheme == "file" && u.Path != "":
	case (u.Scheme == "https" || u.Scheme == "http") && u.Host != "":
		if u.User != nil {
			return errors.New("holds a user or password; set sasl.oauthbearer.client.credentials.client.id and .client.secret")
		}
	default:
		return errors.New("is neither file:///path nor an http or https address")
	}
	c.sasl.endpoint = v
	return nil
}

// oauthServer fetches tokens by the client credentials grant and keeps one until shortly before it
// ends.
type oauthServer struct {
	settings saslSettings

	mu    sync.Mutex
	value string
	until time.Time
}

// tokenMargin is how long before its end a token is no longer used.
const tokenMargin = 30 * time.Second

func (o *oauthServer) token(ctx context.Context) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.value != "" && time.Until(o.until) > tokenMargin {
		return o.value, nil
	}
	value, lifetime, err := o.fetch(ctx)
	if err != nil {
		return "", fmt.Errorf("fetch a token from the OAuth server: %w", err)
	}
	o.value, o.until = value, time.Now().Add(lifetime)
	return value, nil
}

func (o *oauthServer) fetch(ctx context.Context) (string, time.Duration, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if o.settings.scope != "" {
		form.Set("scope", o.settings.scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.settings.endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	id, secret := o.settings.clientID, o.settings.clientSecret.Reveal()
	if o.settings.urlEncode {
		id, secret = url.QueryEscape(id), url.QueryEscape(secret)
	}
	req.SetBasicAuth(id, secret)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	// One request in many minutes: a connection kept open for it would be stale by then.
	req.Close = true
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", 0, err
	}
	if resp.StatusCode/100 != 2 {
		return "", 0, fmt.Errorf("it answered %s", resp.Status) // its body may repeat what was sent
	}
	var answer struct {
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.AccessToken == "" {
		return "", 0, errors.New("its answer holds no access_token")
	}
	return answer.AccessToken, time.Duration(answer.ExpiresIn * float64(time.Second)), nil
}
