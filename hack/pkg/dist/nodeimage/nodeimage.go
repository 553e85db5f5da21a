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

// Package nodeimage builds node images for kind out of a server tarball. The work
// is done by kind, which needs a Docker engine, its base image and the registries
// of a few other images. This package finds out first whether these are to be had,
// because kind takes minutes to fail, and does not say what to do.
package nodeimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/sys"
)

// Options say what is built.
type Options struct {
	// Release is that of the tarball, like 1.36.
	Release string
	// Tarball is the server tarball of the release.
	Tarball string
	// Version is what the tarball must have, like v1.36.3+dra.1.
	Version string
	// Arch is the architecture of the tarball.
	Arch string
	// Image is the name of the image.
	Image string
	// File is where the image is saved to, too, for machines without it. Nowhere if it is empty.
	File string
	// BaseImage is what the tarball is added to; empty for the one that
	// belongs to this version of kind.
	BaseImage string
	// Kind returns the path of kind. It is called when everything that does
	// not need it was found.
	Kind func(ctx context.Context) (string, error)
	// Scratch is an existing folder for temporary files.
	Scratch string
	// Output gets what kind and docker say while they work.
	Output io.Writer
	// Log tells the user what is going on.
	Log func(format string, args ...any)
}

// DefaultImage is the name of the image for a version, unless the user wants
// another one. Tags cannot contain a plus sign.
func DefaultImage(version string) string {
	return "kubernetes-dra/node:" + strings.ReplaceAll(version, "+", "-")
}

// Build builds the image, or says in one error what is missing for it.
func Build(ctx context.Context, o Options) error {
	err := o.build(ctx)
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		return context.Cause(ctx)
	}
	return err
}

func (o Options) build(ctx context.Context) error {
	engineArch, engineErr := engine(ctx)
	if err := errors.Join(o.checkTarball(), engineErr); err != nil {
		return fmt.Errorf("cannot build a node image:\n%w", err)
	}
	kind, err := o.Kind(ctx)
	if err != nil {
		return err
	}
	if o.BaseImage == "" {
		if o.BaseImage, err = DefaultBaseImage(ctx, kind); err != nil {
			return err
		}
	}
	if have, _ := docker(ctx, "image", "inspect", "--format", "{{.Architecture}}", o.BaseImage); have != o.Arch {
		o.Log("pulling %s", o.BaseImage)
		if _, err := docker(ctx, "pull", "--quiet", "--platform=linux/"+o.Arch, o.BaseImage); err != nil {
			return fmt.Errorf("the engine does not have the base image %s for %s, and it could not be pulled: bring it here with docker save and docker load, or name another one with --base-image: %w",
				o.BaseImage, o.Arch, err)
		}
	}
	if o.Arch != engineArch {
		// Kind asks the kubeadm in the image what images it needs.
		if _, err := docker(ctx, "run", "--rm", "--platform=linux/"+o.Arch, "--entrypoint=true", o.BaseImage); err != nil {
			return fmt.Errorf("the Docker engine is on %s and does not run programs for %s: install an emulator (on Debian and Ubuntu: apt-get install qemu-user-static binfmt-support), or build on a machine of that architecture: %w",
				engineArch, o.Arch, err)
		}
	}
	if err := o.run(ctx, kind); err != nil || o.File == "" {
		return err
	}
	if _, err := docker(ctx, "save", "--output", o.File, o.Image); err != nil {
		return fmt.Errorf("%s is built, but not saved to %s: %w", o.Image, o.File, err)
	}
	return nil
}

// checkTarball finds out whether there is a tarball of the version that is wanted. One of another
// version would become an image with the wrong name.
func (o Options) checkTarball() error {
	version, err := versionOf(o.Tarball)
	if err == nil && version != o.Version {
		err = fmt.Errorf("it has version %q, and this is %s", version, o.Version)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: build it with make release RELEASE=%s", o.Tarball, err, o.Release)
	}
	return nil
}

func versionOf(tarball string) (string, error) {
	f, err := os.Open(tarball)
	if err != nil {
		return "", err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return "", err
	}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return "", nil
		} else if err != nil {
			return "", err
		}
		if path.Clean(header.Name) == "kubernetes/version" {
			content, err := io.ReadAll(io.LimitReader(r, 1<<10))
			return strings.TrimSpace(string(content)), err
		}
	}
}

// engine returns the architecture of the Docker engine.
func engine(ctx context.Context) (string, error) {
	// Kind itself runs the program of this name, and no other.
	if _, err := exec.LookPath("docker"); err != nil {
		return "", errors.New("there is no docker client in PATH, and kind builds images with that alone: install Docker (on Debian and Ubuntu: apt-get install docker.io)")
	}
	arch, err := docker(ctx, "version", "--format", "{{.Server.Arch}}")
	if err != nil {
		return "", fmt.Errorf("no Docker engine answers: start one as root (systemctl start docker, or dockerd), or name one with DOCKER_HOST that you may use: %w", err)
	}
	return arch, nil
}

// docker returns what the docker client prints.
func docker(ctx context.Context, args ...string) (string, error) {
	out, err := sys.Output(ctx, sys.Command(ctx, "", nil, "docker", args...))
	return strings.TrimSpace(out), err
}

var baseImageFlag = regexp.MustCompile(`--base-image .*\(default "([^"]+)"\)`)

// DefaultBaseImage asks kind, a program, for the base image that belongs to its version.
func DefaultBaseImage(ctx context.Context, kind string) (string, error) {
	out, err := sys.Output(ctx, sys.Command(ctx, "", nil, kind, "build", "node-image", "--help"))
	if err != nil {
		return "", err
	}
	if match := baseImageFlag.FindStringSubmatch(out); match != nil {
		return match[1], nil
	}
	return "", fmt.Errorf("%s build node-image --help does not say what its base image is: name one with --base-image", kind)
}

// buildContainer is what kind says about its work.
var buildContainer = regexp.MustCompile(`Building in container: (\S+)`)

// run lets kind build the image.
func (o Options) run(ctx context.Context, kind string) error {
	// Kind leaves there what it unpacked from the tarball.
	scratch, err := os.MkdirTemp(o.Scratch, "node-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	cmd := sys.Command(ctx, "", append(os.Environ(), "TMPDIR="+scratch), kind, "build", "node-image", "--type=file", "--arch="+o.Arch,
		"--image="+o.Image, "--base-image="+o.BaseImage, o.Tarball)
	o.Log("%s", cmd)
	var said bytes.Buffer
	// The same writer for both, so that there is one copy at a time.
	output := io.MultiWriter(o.Output, &said)
	cmd.Stdout, cmd.Stderr = output, output
	err = cmd.Run()
	container := buildContainer.FindSubmatch(said.Bytes())
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && container != nil:
		// Kind did not get to it.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if _, err := docker(clean, "rm", "--force", "--volumes", string(container[1])); err != nil {
			return fmt.Errorf("%w; the container %s is left: %w", context.Cause(ctx), container[1], err)
		}
		return context.Cause(ctx)
	case bytes.Contains(said.Bytes(), []byte("Failed to pull ")):
		return fmt.Errorf("kind build node-image: %w: it could not pull images that belong into this one, see above: containers must reach their registries; kind passes HTTP_PROXY, HTTPS_PROXY and NO_PROXY on", err)
	}
	return fmt.Errorf("kind build node-image: %w; it said why above", err)
}
