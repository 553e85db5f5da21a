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

// Package check runs checks of a DRA driver against a cluster, and reports what they found.
// It only uses the API server: whoever can run pods with the driver's devices can run it.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Check asks one question about a driver.
type Check struct {
	// ID names it on the command line, and in names of objects.
	ID string
	// Asks is one line about what it asks, and why.
	Asks string
	// Do says what an author does when it fails. A Failure may know better.
	Do string
	// Needs are what it cannot be asked without.
	Needs []Need
	// Run answers. It ends early where a method of Case ends it, as a test does in FailNow.
	Run func(c *Case)
}

// Need returns why something is missing, or nothing if it is there.
type Need func(c *Case) (reason string)

// Verdict is the answer.
type Verdict string

// Verdicts, as they are printed.
const (
	Pass    Verdict = "pass"
	Fail    Verdict = "fail"
	Skipped Verdict = "skip"
)

// Result is that of a check.
type Result struct {
	ID      string
	Asks    string
	Verdict Verdict
	Took    time.Duration
	// Notes are what else is worth knowing.
	Notes []string
	// Reason is why it was skipped, or what failed.
	Reason string
	// Seen is what the cluster showed when it failed.
	Seen []string
	// Do is what an author does then.
	Do string
}

// Failure means that the answer is no. What the cluster shows is added if Seen is empty.
type Failure struct {
	What string
	Seen []string
	Do   string
}

func (f *Failure) Error() string { return f.What }

// Failf returns a Failure.
func Failf(format string, args ...any) *Failure { return &Failure{What: fmt.Sprintf(format, args...)} }

type skip struct{ reason string }

func (s *skip) Error() string { return s.reason }

// Run does one check after the other: each wants devices. It stops when the context ends, with the
// results so far, and an error if something is left of the check that was interrupted. progress hears of each.
func Run(ctx context.Context, e *Env, checks []Check, progress func(Result)) ([]Result, error) {
	var results []Result
	for _, check := range checks {
		result, err := e.try(ctx, check)
		if ctx.Err() != nil {
			// It was interrupted, which says nothing about the driver.
			if err != nil {
				err = fmt.Errorf("clean up after check %s: %w. %s", check.ID, err, e.removeRest())
			}
			return results, err
		}
		results = append(results, result)
		progress(result)
	}
	return results, nil
}

// removeRest says what the user does when something is left.
func (e *Env) removeRest() string {
	return fmt.Sprintf("Look for Jobs, pods and claims in namespace %s, and for DeviceTaintRules, that have the label %s=%s, and delete them", e.Namespace, runLabel, e.run)
}

// try does one check, and removes what it made. The error says that something is left. The result has it, too.
func (e *Env) try(ctx context.Context, check Check) (Result, error) {
	c := &Case{Env: e, ctx: ctx, id: check.ID}
	start := time.Now()
	// A goroutine of its own can be ended anywhere.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, need := range check.Needs {
			if reason := need(c); reason != "" {
				c.Skipf("%s", reason)
			}
		}
		check.Run(c)
	}()
	<-done
	result := Result{ID: check.ID, Asks: check.Asks, Took: time.Since(start)}
	var failure *Failure
	if errors.As(c.err, &failure) && len(failure.Seen) == 0 {
		failure.Seen = c.explain(ctx)
	}
	result.judge(c.err, check.Do)
	// Nothing is left also if the user has interrupted it.
	err := c.clean(context.WithoutCancel(ctx))
	switch {
	case err == nil:
	case result.Verdict == Fail:
		c.Note("it was hard to clean up, too: %v", err)
	default:
		if result.Verdict == Skipped {
			c.Note("it was to be skipped: %s", result.Reason)
		}
		result.judgeCleanUp(err, check.Do, e.removeRest())
	}
	result.Notes = c.notes
	return result, err
}

// judge turns the error of a check into its verdict.
func (r *Result) judge(err error, do string) {
	var failure *Failure
	var skip *skip
	switch {
	case err == nil:
		r.Verdict = Pass
	case errors.As(err, &skip):
		r.Verdict, r.Reason = Skipped, skip.reason
	case errors.As(err, &failure):
		r.Verdict, r.Reason, r.Seen, r.Do = Fail, failure.What, failure.Seen, do
		if failure.Do != "" {
			r.Do = failure.Do
		}
	case apierrors.IsForbidden(err):
		// That is about who runs the program, and not about the driver.
		r.Verdict, r.Reason = Skipped, "you may not do this: "+err.Error()
	default:
		r.Verdict, r.Reason = Fail, "the check could not go on: "+err.Error()
		r.Do = "Look at the error, and run the check again with --only " + r.ID + "."
	}
}

// judgeCleanUp is for what is left of a check that passed, or was skipped. That is never a reason to skip.
func (r *Result) judgeCleanUp(err error, do, removeRest string) {
	r.Verdict, r.Reason = Fail, "it could not clean up: "+err.Error()
	r.Do = removeRest + ". Then run the check again with --only " + r.ID + "."
	var failure *Failure
	if errors.As(err, &failure) {
		r.Reason, r.Seen, r.Do = err.Error(), failure.Seen, cmp.Or(failure.Do, do)
	}
}

// Case is a check that runs.
type Case struct {
	*Env
	ctx      context.Context
	id       string
	err      error
	notes    []string
	cleanups []func(ctx context.Context) error
}

// Context ends when the user interrupts the check.
func (c *Case) Context() context.Context { return c.ctx }

// Must ends the check if there is an error. It is a *Failure if the driver is to blame.
func (c *Case) Must(err error) {
	if err != nil {
		c.err = err
		runtime.Goexit()
	}
}

// Failf ends the check: the answer is no.
func (c *Case) Failf(format string, args ...any) { c.Must(Failf(format, args...)) }

// Skipf ends the check: there is no answer in this cluster.
func (c *Case) Skipf(format string, args ...any) { c.Must(&skip{fmt.Sprintf(format, args...)}) }

// Note adds to the result.
func (c *Case) Note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// Cleanup is called when the check has ended, the last one first.
func (c *Case) Cleanup(f func(ctx context.Context) error) { c.cleanups = append(c.cleanups, f) }

// Until polls for as long as the user has patience.
func (c *Case) Until(what string, condition func() error) { c.Within(c.Patience, what, condition) }

// Within polls for a time that the driver has to keep.
func (c *Case) Within(limit time.Duration, what string, condition func() error) {
	c.Must(within(c.ctx, limit, what, func(context.Context) error { return condition() }))
}
