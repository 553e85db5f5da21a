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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
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
	engineArch, engineErr := engine(ctx)
	if err := errors.Join(o.checkTarball(), engineErr); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
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
	if err := o.ensureBaseImage(ctx); err != nil {
		return err
	}
	if o.Arch != engineArch {
		if err := o.checkEmulation(ctx, engineArch); err != nil {
			return err
		}
	}
	return o.run(ctx, kind)
}

// engine returns the architecture of the Docker engine.
func engine(ctx context.Context) (string, error) {
	// Kind itself runs the program of this name, and no other.
	if _, err := exec.LookPath("docker"); err != nil {
		return "", errors.New("there is no docker client in PATH, and kind builds images with that alone: install Docker (on Debian and Ubuntu: apt-get install docker.io)")
	}
	arch, err := docker(ctx, "version", "--format", "{{.Server.Arch}}")
	if err != nil {
		return "", fmt.Errorf("no Docker engine answers (%w): start one as root (systemctl start docker, or dockerd), or name one with DOCKER_HOST that you may use", err)
	}
	return arch, nil
}

// ensureBaseImage pulls the base image if the engine does not have it for the
// architecture.
func (o Options) ensureBaseImage(ctx context.Context) error {
	problem := "the engine does not have it"
	if arch, err := docker(ctx, "image", "inspect", "--format", "{{.Architecture}}", o.BaseImage); err == nil {
		if arch == o.Arch {
			return nil
		}
		problem = fmt.Sprintf("the engine has it for %s only, not for %s", arch, o.Arch)
	} else if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	o.Log("pulling %s", o.BaseImage)
	if err := dockerTo(ctx, o.Output, "pull", "--platform=linux/"+o.Arch, o.BaseImage); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("base image %s: %s, and it could not be pulled (%w): bring it here with docker save and docker load, or name another one with --base-image",
			o.BaseImage, problem, err)
	}
	return nil
}

// checkEmulation finds out whether the engine runs programs of another
// architecture: kind asks the kubeadm in the image what images it needs.
func (o Options) checkEmulation(ctx context.Context, engineArch string) error {
	if _, err := docker(ctx, "run", "--rm", "--platform=linux/"+o.Arch, "--entrypoint=true", o.BaseImage); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("the Docker engine is on %s and does not run programs for %s (%w): install an emulator (on Debian and Ubuntu: apt-get install qemu-user-static binfmt-support), or build on a machine of that architecture",
			engineArch, o.Arch, err)
	}
	return nil
}

// docker returns what the docker client prints.
func docker(ctx context.Context, args ...string) (string, error) {
	var stdout bytes.Buffer
	err := dockerTo(ctx, &stdout, args...)
	return strings.TrimSpace(stdout.String()), err
}

// dockerTo runs the docker client. On failure, the last thing that it said is the
// error.
func dockerTo(ctx context.Context, stdout io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return nil
	}
	said := strings.TrimSpace(stderr.String())
	if i := strings.LastIndexByte(said, '\n'); i >= 0 {
		said = said[i+1:]
	}
	if said == "" {
		return fmt.Errorf("docker %s: %w", args[0], err)
	}
	return fmt.Errorf("docker %s: %s", args[0], said)
}

var baseImageFlag = regexp.MustCompile(`--base-image .*\(default "([^"]+)"\)`)

// DefaultBaseImage asks kind, a program, for the base image that belongs to its version.
func DefaultBaseImage(ctx context.Context, kind string) (string, error) {
	args := []string{"build", "node-image", "--help"}
	out, err := sys.Output(ctx, sys.Command(ctx, "", nil, kind, args...))
	if err != nil {
		return "", err
	}
	match := baseImageFlag.FindStringSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("%s %s does not say what its base image is: name one with --base-image", kind, strings.Join(args, " "))
	}
	return match[1], nil
}

// What kind says about its work.
var (
	buildContainer = regexp.MustCompile(`Building in container: (\S+)`)
	failedPull     = regexp.MustCompile(`Failed to pull (\S+) with error`)
)

// run lets kind build the image.
func (o Options) run(ctx context.Context, kind string) error {
	// Kind leaves there what it unpacked from the tarball.
	scratch, err := os.MkdirTemp(o.Scratch, "node-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)

	args := []string{
		"build", "node-image", "--type=file", "--arch=" + o.Arch,
		"--image=" + o.Image, "--base-image=" + o.BaseImage, o.Tarball,
	}
	o.Log("kind %s", strings.Join(args, " "))
	cmd := sys.Command(ctx, "", append(os.Environ(), "TMPDIR="+scratch), kind, args...)
	var said bytes.Buffer
	// The same writer for both, so that there is one copy at a time.
	output := io.MultiWriter(o.Output, &said)
	cmd.Stdout, cmd.Stderr = output, output
	err = cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		// Kind did not get to it.
		if match := buildContainer.FindSubmatch(said.Bytes()); match != nil {
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			if _, err := docker(clean, "rm", "--force", "--volumes", string(match[1])); err != nil {
				return fmt.Errorf("%w; the container %s is left: %w", context.Cause(ctx), match[1], err)
			}
		}
		return context.Cause(ctx)
	}
	var images []string
	for _, match := range failedPull.FindAllSubmatch(said.Bytes(), -1) {
		images = append(images, string(match[1]))
	}
	if slices.Sort(images); len(images) > 0 {
		return fmt.Errorf("kind build node-image: %w: it could not pull %s, which belong into the image: containers must reach their registries; kind passes HTTP_PROXY, HTTPS_PROXY and NO_PROXY on",
			err, strings.Join(slices.Compact(images), ", "))
	}
	return fmt.Errorf("kind build node-image: %w; it said why above", err)
}
