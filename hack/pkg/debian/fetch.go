/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/atomicfile"
)

// Pool and Snapshot are where packages come from: the archive as it is now,
// and all that it ever had.
const (
	Pool     = "http://deb.debian.org/debian"
	Snapshot = "https://snapshot.debian.org/archive/debian"
)

// Source gets packages. The zero value gets them from [Pool] and [Snapshot], and
// keeps none.
type Source struct {
	// Cache is the folder for packages that were got once.
	Cache string
	// Pool and Snapshot are used instead of those of the same name.
	Pool, Snapshot string
	// Log gets progress, if it is set.
	Log func(format string, args ...any)
}

// errMissing is the error for what a server does not have.
var errMissing = errors.New("the server does not have it")

// timeout is for one package.
const timeout = 10 * time.Minute

func snapshotURL(base, stamp, path string) string {
	return base + "/" + stamp + "/" + escape(path)
}

// escape is for versions, which may have a plus sign: some servers take that for
// a space.
func escape(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(parts[i]), "+", "%2B")
	}
	return strings.Join(parts, "/")
}

// fetch returns the content of a package. It is what the lock file says, wherever
// it comes from.
func (s Source) fetch(ctx context.Context, l *Lock, p Package) ([]byte, error) {
	kept := ""
	if s.Cache != "" {
		kept = filepath.Join(s.Cache, "debian", p.SHA256+".deb")
		content, err := os.ReadFile(kept)
		// What is not right any more is got again.
		if err == nil && p.verify(content) == nil {
			return content, nil
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	content, err := s.download(ctx, l, p)
	if err != nil {
		return nil, fmt.Errorf("package %s %s: %w", p.Name, p.Version, err)
	}
	if kept != "" {
		if err := atomicfile.Write(kept, content); err != nil {
			return nil, err
		}
	}
	return content, nil
}

// download asks the pool, and if that has the version no more, the snapshot.
func (s Source) download(ctx context.Context, l *Lock, p Package) ([]byte, error) {
	pool, snapshot := s.Pool, s.Snapshot
	if pool == "" {
		pool = Pool
	}
	if snapshot == "" {
		snapshot = Snapshot
	}
	content, err := s.get(ctx, pool+"/"+escape(p.Path), p)
	if errors.Is(err, errMissing) {
		var again error
		if content, again = s.get(ctx, snapshotURL(snapshot, l.Snapshot, p.Path), p); again != nil {
			return nil, errors.Join(err, again)
		}
		return content, nil
	}
	return content, err
}

func (s Source) get(ctx context.Context, from string, p Package) ([]byte, error) {
	if s.Log != nil {
		s.Log("downloading %s", from)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return nil, fmt.Errorf("%s: %w: %s", from, errMissing, response.Status)
	default:
		return nil, fmt.Errorf("%s: %s", from, response.Status)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, p.Size+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	if err := p.verify(content); err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return content, nil
}

func (p Package) verify(content []byte) error {
	if size := int64(len(content)); size > p.Size {
		return fmt.Errorf("it is longer than the %d bytes in the lock file", p.Size)
	} else if size < p.Size {
		return fmt.Errorf("it has %d bytes, but the lock file says %d", size, p.Size)
	}
	sum := sha256.Sum256(content)
	if got := hex.EncodeToString(sum[:]); got != p.SHA256 {
		return fmt.Errorf("its SHA-256 sum is %s, but the lock file says %s", got, p.SHA256)
	}
	return nil
}
