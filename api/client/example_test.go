package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// The address of a gateway and a key come from the caller.
func connect(endpoint string) *client.Client {
	c, err := client.New(client.Options{Endpoints: []string{endpoint}, Token: "token"})
	if err != nil {
		panic(err)
	}
	return c
}

func Example() {
	endpoint, stop := client.StartFake()
	defer stop()
	c := connect(endpoint)
	defer c.Close()
	ctx := context.Background()
	object, err := c.Upload(ctx, "photos", "2026/note.txt", strings.NewReader("hello"), client.UploadOptions{ContentType: "text/plain"})
	if err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("upload", "err", err)
		return
	}
	hash, err := client.ParseHash(object.BLAKE3)
	if err != nil {
		return
	}
	// Each KiB is verified before it is written.
	if _, err := c.Download(ctx, "photos", "2026/note.txt", os.Stdout, client.DownloadOptions{Verify: true, Hash: &hash}); err != nil {
		return
	}
	fmt.Println()
	_, err = c.Head(ctx, "photos", "absent")
	fmt.Println(errors.Is(err, client.ErrNotFound))
	// Output:
	// hello
	// true
}

func ExampleClient_List() {
	endpoint, stop := client.StartFake()
	defer stop()
	c := connect(endpoint)
	defer c.Close()
	ctx := context.Background()
	for _, key := range []string{"a/1", "a/2", "b"} {
		if _, err := c.Upload(ctx, "bucket", key, strings.NewReader(key), client.UploadOptions{}); err != nil {
			return
		}
	}
	for object, err := range c.List(ctx, "bucket", client.ListOptions{}) {
		if err != nil {
			return
		}
		fmt.Println(object.Key)
	}
	// Output:
	// b
	// a/
}

func ExampleVault() {
	endpoint, stop := client.StartFake()
	defer stop()
	c := connect(endpoint)
	defer c.Close()
	ctx := context.Background()
	identity, err := seal.Generate()
	if err != nil {
		return
	}
	vault, err := c.NewVault("private", identity, false)
	if err != nil {
		return
	}
	if err := vault.Upload(ctx, "papers/will.txt", strings.NewReader("secret"), client.UploadOptions{}); err != nil {
		return
	}
	if err := vault.Download(ctx, "papers/will.txt", os.Stdout, client.DownloadOptions{}); err != nil {
		return
	}
	fmt.Println()
	for object, err := range vault.Entries(ctx, "papers/", false) {
		fmt.Println(object.Key, object.Size, err)
	}
	// Output:
	// secret
	// papers/will.txt 6 <nil>
}

func ExampleVault_Share() {
	endpoint, stop := client.StartFake()
	defer stop()
	c := connect(endpoint)
	defer c.Close()
	ctx := context.Background()
	owner, err := seal.Generate()
	if err != nil {
		return
	}
	vault, err := c.NewVault("private", owner, false)
	if err != nil {
		return
	}
	if err := vault.Upload(ctx, "papers/2026/plan.txt", strings.NewReader("a plan"), client.UploadOptions{}); err != nil {
		return
	}
	link, err := vault.Share(ctx, "papers/2026", client.ShareOptions{
		Permissions: seal.ReadOnly(), Expires: time.Now().Add(24 * time.Hour), Page: "https://console.example.org/shared",
	})
	if err != nil {
		return
	}
	readShared(ctx, link.URL())
	fmt.Println(c.RevokeShare(ctx, "private", link.Token.ShareID))
	// Output:
	// papers/2026/plan.txt 6
	// a plan
	// <nil>
}

// readShared is the side of the recipient, who has neither an account nor an identity.
func readShared(ctx context.Context, text string) {
	link, err := seal.ParseLink(text)
	if err != nil {
		return
	}
	grant, err := link.Open(time.Now())
	if err != nil {
		return
	}
	c, err := client.New(client.Options{Endpoints: link.Endpoints, Token: link.Access})
	if err != nil {
		return
	}
	defer c.Close()
	shared, err := c.OpenShare(grant)
	if err != nil {
		return
	}
	for file, err := range shared.Entries(ctx, "papers/2026/", true) {
		if err != nil {
			return
		}
		fmt.Println(file.Key, file.Size)
		if err := shared.Download(ctx, file.Key, os.Stdout, client.DownloadOptions{}); err != nil {
			return
		}
		fmt.Println()
	}
}
