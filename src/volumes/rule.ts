import type { KubeObject, ObjectMeta } from '../kube/objects.ts';
import type { ObjectRef, Resource } from '../kube/resources.ts';
import { RefusedError } from './provisioning-options.ts';
import type { WaitCondition } from './provisioning-options.ts';

/** What a rule has to know, or to have done, before it can go on. Whoever runs the rule does it; so
 * rules stay pure and keep their order of checks. */
export type Step =
  | { readonly kind: 'read'; readonly resource: Resource; readonly ref: ObjectRef }
  | { readonly kind: 'list'; readonly resource: Resource; readonly namespace: string }
  /** Adds a finalizer that the object does not have yet. */
  | {
      readonly kind: 'protect';
      readonly resource: Resource;
      readonly object: KubeObject;
      readonly finalizer: string;
    };

/** What came of a step. `refused`: the API server's answer was no, in its own words; an API server
 * that is down never gets this far. */
export type Answer =
  | { readonly kind: 'found'; readonly object: KubeObject }
  /** `isUnknownKind`: the server has no such kind, yet. */
  | { readonly kind: 'absent'; readonly isUnknownKind?: true }
  | { readonly kind: 'listed'; readonly items: readonly KubeObject[] }
  | { readonly kind: 'protected' }
  | { readonly kind: 'refused'; readonly code: number; readonly message: string };

/** A rule that asks for what it needs, step by step.
 * @throws RefusedError where the claim can't be served as things are */
export type Rule<T> = Generator<Step, T, Answer>;

/** Reads an object; what is missing or withheld refuses the claim, and its coming wakes it.
 * @param words begin of the refusal; the cause is added
 * @throws RefusedError */
export function* read<T extends KubeObject>(
  resource: Resource,
  ref: ObjectRef,
  words = '',
): Rule<T> {
  const answer = yield { kind: 'read', resource, ref };
  const begin = words === '' ? '' : `${words}: `;
  // The runner read exactly this resource.
  if (answer.kind === 'found') return answer.object as T;
  if (answer.kind === 'refused') throw new RefusedError(`${begin}${answer.message}`);
  const isUnknownKind = answer.kind === 'absent' && answer.isUnknownKind === true;
  const cause = isUnknownKind ? unknownKind(resource, ref.name) : notFound(resource, ref.name);
  throw new RefusedError(`${begin}${cause}`, {
    waitsFor: [{ resource: resource.plural, ...ref, seen: '' }],
  });
}

/** Lists a namespace.
 * @param words begin of the refusal
 * @throws RefusedError where the server does not let us */
export function* list<T extends KubeObject>(
  resource: Resource,
  namespace: string,
  words: string,
): Rule<readonly T[]> {
  const answer = yield { kind: 'list', resource, namespace };
  if (answer.kind === 'refused') throw new RefusedError(`${words}: ${answer.message}`);
  return answer.kind === 'listed' ? (answer.items as readonly T[]) : [];
}

/** The refusal of a claim because an object is not yet as it should be; its next change wakes the
 * claim. */
export function untilChanged(
  resource: Resource,
  object: { readonly metadata: ObjectMeta },
  message: string,
): RefusedError {
  return new RefusedError(message, { waitsFor: [awaited(resource, object)] });
}

/** A rule about what `object` refers to: where it waits for something, a change of the reference
 * ends that wait too.
 * @throws RefusedError */
export function* orUntilChanged<T>(
  resource: Resource,
  object: { readonly metadata: ObjectMeta },
  rule: Rule<T>,
): Rule<T> {
  try {
    return yield* rule;
  } catch (cause) {
    const waitsFor = cause instanceof RefusedError ? cause.waitsFor : [];
    const reference = awaited(resource, object);
    if (
      !(cause instanceof RefusedError) ||
      waitsFor.length === 0 ||
      waitsFor.some((other) => isSame(other, reference))
    )
      throw cause;
    throw new RefusedError(cause.message, { cause, waitsFor: [...waitsFor, reference] });
  }
}

function awaited(
  resource: Resource,
  { metadata }: { readonly metadata: ObjectMeta },
): WaitCondition {
  const { namespace, name, resourceVersion } = metadata;
  return {
    resource: resource.plural,
    ...(namespace === undefined ? {} : { namespace }),
    name,
    seen: resourceVersion,
  };
}

function isSame(a: WaitCondition, b: WaitCondition): boolean {
  return a.resource === b.resource && a.namespace === b.namespace && a.name === b.name;
}

/** As clients say it of a kind that the server does not serve. */
function unknownKind(resource: Resource, name: string): string {
  return `the server could not find the requested resource (get ${groupedPlural(resource)} ${name})`;
}

/** As the API server says it: `secrets "x" not found`. */
export function notFound(resource: Resource, name: string): string {
  return `${groupedPlural(resource)} "${name}" not found`;
}

function groupedPlural({ plural, group }: Resource): string {
  return group === '' ? plural : `${plural}.${group}`;
}
