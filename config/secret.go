package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Limits of a cluster secret and of the file with places to join at.
const (
	maxSecretFile  = 4096     // size of a file with a secret, in bytes
	maxJoinFile    = 64 << 10 // size of a file with tickets and addresses, in bytes
	minSecretBytes = 16       // length of the decoded secret, in bytes
)

// GivenSecret returns the cluster secret from Cluster.SecretFile or Cluster.Secret, or nil if
// neither is set. If it cannot read the file, or the file contains no valid secret, it returns an
// *Error that names the file. Load does not read the file, because a node that is already a
// member does not need it.
func (c Config) GivenSecret() ([]byte, error) {
	path := c.Cluster.SecretFile
	if path == "" {
		if c.Cluster.Secret == "" {
			return nil, nil
		}
		return ParseSecret(c.Cluster.Secret)
	}
	raw, err := readBounded(path, maxSecretFile)
	if err == nil {
		var secret []byte
		if secret, err = ParseSecret(string(raw)); err == nil {
			return secret, nil
		}
		err = fmt.Errorf("%s: %w", path, err)
	}
	var from source
	if c.secretFrom != nil {
		from = *c.secretFrom
	}
	return nil, asError([]Problem{{Key: "cluster.secret_file", Source: from.name, Detail: err.Error(), flag: from.flag}})
}

// JoinFileEntries returns the entries of Cluster.JoinFile, one for each line that is not empty. The
// error is fs.ErrNotExist if there is no file, or none with an entry yet. If the file cannot be read
// or is larger than 64 KiB, or an entry is no value of cluster.join, the error names the file.
func (c Config) JoinFileEntries() ([]string, error) {
	path := c.Cluster.JoinFile
	raw, err := readBounded(path, maxJoinFile)
	entries := strings.Fields(string(raw))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cluster.join_file: %w", err)
	case len(entries) == 0:
		return nil, fmt.Errorf("cluster.join_file: %s: %w", path, fs.ErrNotExist)
	}
	if err := joinPlaces(&entries); err != nil {
		return nil, fmt.Errorf("cluster.join_file: %s: %w", path, err)
	}
	return entries, nil
}

// ParseSecret decodes a cluster secret from hexadecimal, as it is in secret files and in
// HOLDFAST_SECRET. White space around the text is ignored. A secret has at least minSecretBytes
// bytes.
func ParseSecret(text string) ([]byte, error) {
	secret, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(secret) < minSecretBytes {
		return nil, fmt.Errorf("the cluster secret is not %d or more bytes in hexadecimal", minSecretBytes)
	}
	return secret, nil
}

// secretText is a check that accepts an empty string, and a cluster secret.
func secretText(field any) error {
	text := *field.(*string)
	if text == "" {
		return nil
	}
	if _, err := ParseSecret(text); err != nil {
		return &openError{err}
	}
	return nil
}
