package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"

	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/holdfast-ipfs/holdfast/api/client/seal"
	"github.com/spf13/cobra"
)

// Limits of passphrases. A passphrase of eight characters resists somebody who has the identity
// file for a day only if the characters are random. The documentation therefore recommends five
// words.
const (
	minPassphrase = 8    // characters
	maxPassphrase = 1024 // bytes
)

// sealing has the flags of commands that encrypt or decrypt objects.
type sealing struct {
	encrypt        bool
	hybrid         bool
	identity       string
	passphraseFile string
}

// sealingFlags adds the encryption flags to cmd, with --encrypt to select encryption. writes
// tells whether the command encrypts; if it only decrypts, there is no flag --post-quantum.
func sealingFlags(cmd *cobra.Command, writes bool) *sealing {
	s := new(sealing)
	f := cmd.Flags()
	f.BoolVar(&s.encrypt, "encrypt", false, "the object is encrypted for --identity, and its name is hidden")
	f.StringVar(&s.identity, "identity", "", "`file` with the identity, see holdfast keygen (default $HOLDFAST_IDENTITY)")
	f.StringVar(&s.passphraseFile, "passphrase-file", "", "`file` with the passphrase of the identity (default: ask on the terminal)")
	if writes {
		f.BoolVar(&s.hybrid, "post-quantum", false, "wrap keys for ML-KEM-768 with X25519; releases before this one cannot read it")
	}
	mustNotBeEmpty(cmd, "identity", "passphrase-file")
	return s
}

// alwaysSealing adds the encryption flags to a command that handles only encrypted files. It sets
// encrypt and hides the flag --encrypt.
func alwaysSealing(cmd *cobra.Command, writes bool) *sealing {
	s := sealingFlags(cmd, writes)
	s.encrypt = true
	if err := cmd.Flags().MarkHidden("encrypt"); err != nil {
		panic(err)
	}
	return s
}

// check returns a usageError if --encrypt is absent and a flag is given that needs it.
func (s *sealing) check(cmd *cobra.Command) error {
	for _, name := range []string{"identity", "passphrase-file", "post-quantum"} {
		if !s.encrypt && cmd.Flags().Changed(name) {
			return usagef("%s: --%s needs --encrypt", called(cmd), name)
		}
	}
	return nil
}

// vault returns the Vault of a bucket, which encrypts and decrypts its objects with the user's
// identity. It returns nil if the flag --encrypt is absent.
func (a *app) vault(cmd *cobra.Command, c *gateway.Client, r *remote, s *sealing, bucket string) (*gateway.Vault, error) {
	if !s.encrypt {
		return nil, nil
	}
	id, err := a.openIdentity(cmd, r, s)
	if err != nil {
		return nil, err
	}
	return c.NewVault(bucket, id, s.hybrid)
}

// openIdentity opens the identity that --identity, the environment or the profile names, in this
// order of precedence. If the environment or the profile has an identity command and
// --passphrase-file is absent, openIdentity runs that command. The first line of its output is
// the passphrase. Further lines, if any, are the identity file.
func (a *app) openIdentity(cmd *cobra.Command, r *remote, s *sealing) (*seal.Identity, error) {
	p, err := a.remoteSettings(r)
	if err != nil {
		return nil, err
	}
	path := p.Identity
	if s.identity != "" {
		path = s.identity
	}
	var passphrase, file []byte
	if p.IdentityCommand != "" && s.passphraseFile == "" {
		out, err := a.runAgent(cmd.Context(), p.IdentityCommand)
		if err != nil {
			return nil, err
		}
		passphrase, file, _ = bytes.Cut(out, []byte("\n"))
		passphrase = bytes.TrimSuffix(passphrase, []byte("\r"))
	}
	if len(bytes.TrimSpace(file)) == 0 {
		if path == "" {
			return nil, usagef("%s: no identity is named: give --identity FILE, set HOLDFAST_IDENTITY, or put identity into the profile; holdfast keygen makes one", called(cmd))
		}
		if file, err = readIdentity(cmd.Context(), path); err != nil {
			return nil, err
		}
	}
	if passphrase == nil {
		if passphrase, err = a.passphrase(cmd.Context(), s.passphraseFile, "Passphrase of the identity: "); err != nil {
			return nil, err
		}
	}
	return unlock(path, file, passphrase)
}

// openIdentityFile opens the identity file at path. It reads the passphrase from passphraseFile,
// or from the terminal if passphraseFile is empty.
func (a *app) openIdentityFile(ctx context.Context, path, passphraseFile string) (*seal.Identity, error) {
	file, err := readIdentity(ctx, path)
	if err != nil {
		return nil, err
	}
	passphrase, err := a.passphrase(ctx, passphraseFile, "Passphrase of "+path+": ")
	if err != nil {
		return nil, err
	}
	return unlock(path, file, passphrase)
}

// unlock decrypts an identity file. file is its content; path is its name in errors.
func unlock(path string, file, passphrase []byte) (*seal.Identity, error) {
	id, err := seal.OpenIdentity(file, passphrase)
	debug.FreeOSMemory() // free the memory of argon2id before a transfer begins
	if err != nil {
		return nil, fmt.Errorf("identity %s: %w", path, err)
	}
	return id, nil
}

// readIdentity reads an identity file. It returns an error if other users can read the file.
func readIdentity(ctx context.Context, path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no identity %s: holdfast keygen makes one", path)
	}
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has the mode %04o, and others can read it: run chmod 600 %s", path, info.Mode().Perm(), path)
	}
	return readSecretFile(ctx, path)
}

// runAgent runs the shell command that prints the passphrase, and returns its standard output.
func (a *app) runAgent(ctx context.Context, command string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Env, cmd.Stderr = a.environ, a.stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_IDENTITY_COMMAND: %w", err)
	}
	return out, nil
}

// passphrase reads a passphrase from the first line of file. If file is empty, it shows prompt on
// the terminal and reads what the user types.
func (a *app) passphrase(ctx context.Context, file, prompt string) ([]byte, error) {
	if file != "" {
		text, err := readSecretFile(ctx, file)
		if err != nil {
			return nil, err
		}
		line, _, _ := strings.Cut(string(text), "\n")
		return []byte(strings.TrimSuffix(line, "\r")), nil
	}
	in, ok := a.terminalIn()
	if !ok {
		return nil, errors.New("no passphrase: give --passphrase-file, or set HOLDFAST_IDENTITY_COMMAND to a command that prints it")
	}
	text, err := a.typedUnseen(ctx, in, prompt)
	return []byte(text), err
}

func (a *app) keygenCommand() *cobra.Command {
	var passphraseFile, rotate string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "keygen FILE",
		Short: "Create an identity to encrypt files with",
		Long: `Creates an identity: the keys with which other commands encrypt and decrypt. It
is written to FILE with mode 0600, encrypted under a passphrase (argon2id).
The command prints the share identity, which others need to share files with
you, and which is no secret.

Without FILE or without the passphrase nobody can read your files. Keep a copy
of both.

With --rotate the identity gets new keys and the same storage keys as an older
one. holdfast rewrap then gives it the files of the older one.`,
		Example: `  holdfast keygen ~/.config/holdfast/identity
  holdfast keygen new-identity --rotate ~/.config/holdfast/identity
  holdfast keygen identity --passphrase-file passphrase.txt`,
		Args: arguments(fileArgument),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.Lstat(args[0]); err == nil {
				return fmt.Errorf("%s exists: an identity is not replaced", args[0])
			}
			passphrase, err := a.newPassphrase(cmd.Context(), passphraseFile)
			if err != nil {
				return err
			}
			generate := seal.Generate
			if rotate != "" {
				old, err := a.openIdentityFile(cmd.Context(), rotate, passphraseFile)
				if err != nil {
					return err
				}
				generate = old.Rotate
			}
			id, err := generate()
			if err != nil {
				return err
			}
			file, err := id.Seal(passphrase, identityCost())
			if err != nil {
				return err
			}
			if err := writeNew(args[0], append(file, '\n')); err != nil {
				return err
			}
			return a.did(asJSON, map[string]string{"identity": id.Public().String(), "file": args[0]}, "%s", id.Public())
		},
	}
	cmd.Flags().StringVar(&passphraseFile, "passphrase-file", "", "`file` with the passphrase (default: ask on the terminal)")
	cmd.Flags().StringVar(&rotate, "rotate", "", "`file` with an older identity; its passphrase is asked for, or is the same with --passphrase-file")
	mustNotBeEmpty(cmd, "passphrase-file", "rotate")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// identityCost returns the argon2id parameters of a new identity file. 46 MiB is the largest
// memory that OWASP recommends for argon2id, and keeps the memory of a command below 100 MiB. The
// number of passes is higher than OWASP recommends for 46 MiB, so that one attempt to guess the
// passphrase costs no less than with the 64 MiB of RFC 9106.
func identityCost() seal.Cost { return seal.Cost{Time: 5, Memory: 46 << 10, Threads: 4} }

// newPassphrase reads a new passphrase from file, or, if file is empty, twice from the terminal.
// It returns an error if the passphrase is too short or too long, or if the two inputs differ.
func (a *app) newPassphrase(ctx context.Context, file string) ([]byte, error) {
	passphrase, err := a.passphrase(ctx, file, "New passphrase: ")
	switch {
	case err != nil:
		return nil, err
	case len([]rune(string(passphrase))) < minPassphrase:
		return nil, fmt.Errorf("the passphrase is shorter than %d characters", minPassphrase)
	case len(passphrase) > maxPassphrase:
		return nil, fmt.Errorf("the passphrase is longer than %d bytes", maxPassphrase)
	case file != "":
		return passphrase, nil
	}
	again, err := a.passphrase(ctx, "", "The same again: ")
	if err == nil && !bytes.Equal(again, passphrase) {
		err = errors.New("the two passphrases differ: nothing was created")
	}
	return passphrase, err
}

// writeNew creates a file with mode 0600. It returns an error if the file exists.
func writeNew(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: an identity is not replaced", path)
	}
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path) // the caller gets the first error
	}
	return err
}
