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

package downgrade

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// action is what is done about a claim.
type action string

const (
	// actionNone means that a release of upstream can take over the claim as it is.
	actionNone action = "none"

	// actionList means that the pods which use the claim get listed instead of the workload.
	actionList action = "list"

	// actionRelease means that no pod uses the claim. Without the workload, it becomes free.
	actionRelease action = "release"

	// actionStop means that the user has to end pods first. The claim does not get changed.
	actionStop action = "stop"

	// actionRestore means that --back lists the workload again.
	actionRestore action = "restore"

	// actionLeave means that somebody else than the carry reserved or allocated the claim.
	actionLeave action = "leave"

	// actionForget means that --back cannot list the workload again, and only removes its record.
	actionForget action = "forget"
)

// step is what a run does about one claim.
type step struct {
	namespace, name string
	// holds is what the claim has that upstream does not know.
	holds []string
	// users is the number of pods on nodes that use the claim.
	users  int
	action action
	// why is for the user.
	why string
	// add and remove are changes of status.reservedFor.
	add, remove []reference
	// byHand is true if a claim of the carry keeps what somebody else wrote: upstream would never free its devices.
	byHand bool
}

// isChange returns true if the claim gets changed.
func (s *step) isChange() bool {
	return s.action != actionNone && s.action != actionLeave && s.action != actionStop
}

func newStep(c *claim, pods []corev1.Pod) (step, []reference) {
	users := c.users(pods)
	return step{namespace: c.Namespace, name: c.Name, holds: c.holds(), users: len(users), action: actionNone}, users
}

// decide returns how a claim becomes one that a release of upstream understands.
func decide(c *claim, pods []corev1.Pod) step {
	s, users := newStep(c, pods)
	ours, foreign := c.workloads()
	var missing []reference
	if c.isForAnyPod() || len(ours) > 0 {
		missing = slices.DeleteFunc(users, func(ref reference) bool { return c.isListed(ref.UID) })
	}
	names := join(ours)
	excess := len(c.Status.ReservedFor) - len(ours) + len(missing) - maxReservedFor
	switch {
	case s.users == 0 && len(c.Status.ReservedFor) == len(ours) && (len(ours) > 0 || c.isForAnyPod() || c.isLeft()):
		if !c.isAllocatedByCarry() {
			s.action, s.byHand = actionLeave, true
			s.why = fmt.Sprintf("no pod uses it, but it was allocated by %s, who has to free it", c.writers.who(allocationPath))
			break
		}
		s.action, s.why, s.remove = actionRelease, "no pod uses it: the devices become free", ours
		if names != "" {
			s.why = "no pod uses it: " + names + " is removed, and the devices become free"
		}
	case len(ours) == 0 && len(missing) == 0:
		s.why = "upstream drops the fields"
		if len(foreign) > 0 {
			s.action, s.why, s.byHand = actionLeave, foreignNote(c, foreign), c.isLeftByHand(foreign)
		}
	case len(missing) > 0 && c.DeletionTimestamp != nil:
		s.action, s.why = actionStop, fmt.Sprintf("it is being deleted, and %s of its pods cannot be listed anymore: end all of them", count(len(missing), "one", "%d"))
	case excess > 0:
		s.action, s.why = actionStop, fmt.Sprintf("at most %d pods can be listed: end %s", maxReservedFor, count(excess, "one pod", "%d pods"))
		if names != "" {
			s.why += ", for instance by scaling " + names + " down"
		}
	default:
		s.action, s.why = actionList, fmt.Sprintf("%s added to its list", count(len(missing), "one pod is", "%d pods are"))
		if names != "" {
			s.why += ", " + names + " is removed"
		}
		if len(foreign) > 0 {
			s.why += "; " + foreignNote(c, foreign)
			s.byHand = true
		}
		s.add, s.remove = missing, ours
	}
	if c.isGenerated() && s.users > 0 {
		s.why += "; it was generated for several pods: upstream's kubelet does not start them again"
	}
	return s
}

// decideBack returns how a claim becomes again what it was.
func decideBack(c *claim, pods []corev1.Pod) step {
	s, _ := newStep(c, pods)
	record := c.record()
	add := slices.DeleteFunc(slices.Clone(record), func(ref reference) bool { return c.isListed(ref.UID) })
	names := join(record)
	switch {
	case !c.isRecorded():
		s.why = "it was not changed by a downgrade"
	case c.Status.Allocation == nil:
		s.action, s.why = actionForget, "it is not allocated anymore: the next pod reserves it"
	case c.isLeft() && s.users == 0 && c.isAllocatedByCarry() && (len(add) == 0 || !c.isForAnyPod()):
		// Without its record, nothing would tell that it is allocated for nobody.
		s.action, s.why = actionRelease, "no pod uses it, and the workload cannot be listed again: the devices become free"
	case c.Spec.ReservedFor == nil || !c.isForAnyPod():
		s.action, s.why = actionForget, "an API server of upstream has dropped the fields: the pods stay listed, and the workload is not listed until the claim gets allocated again"
		if c.Spec.ReservedFor == nil {
			s.why = "an API server of upstream has dropped the fields: the pods stay listed. To reserve it for its workload again, create it anew"
		}
	case len(record) == 0:
		s.action, s.why = actionForget, "the annotation does not tell which workload was listed: the next pod that is scheduled lists it"
	case c.DeletionTimestamp != nil && len(add) > 0:
		s.action, s.why = actionForget, "it is being deleted, and nothing can be listed anymore"
	default:
		s.action, s.why, s.add = actionRestore, names+" is listed again, and stands for its pods", add
		for _, ref := range c.Status.ReservedFor {
			if ref.isPod() && c.writers.areAll(entryPath(ref), c.managers) {
				s.remove = append(s.remove, ref)
			}
		}
	}
	return s
}

// join lists references for a message.
func join(refs []reference) string {
	names := make([]string, 0, len(refs))
	for _, ref := range refs {
		names = append(names, ref.String())
	}
	return strings.Join(names, ", ")
}

// count is one of two texts. The one for many has a %d.
func count(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}
