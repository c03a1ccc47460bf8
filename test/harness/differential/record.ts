import type { Fields } from '../../conformance/connection.ts';
import { parseQuantityBytes } from '#src/kube/quantity.ts';
import type { Seen, SeenCapacity } from './observer.ts';
import type { Scene } from './scene.ts';
import type { RecordedMethod } from './scripted-driver.ts';

/** What a provisioner did in one scenario, without the UIDs, versions, times and names that differ
 * in every run. */
export interface ScenarioRecord {
  /** Why the scenario did not finish; '' if it did. */
  readonly trouble: string;
  /** Objects when the scenario had its result, and when all scenarios had finished. */
  readonly provisioned: Objects;
  readonly end: Objects;
  /** Distinct requests, by volume. The number of repetitions depends on timing. */
  readonly calls: Readonly<Record<string, readonly unknown[]>>;
  /** Distinct events. */
  readonly events: Readonly<Record<string, true>>;
  readonly notes: Fields;
  /** Calls that were sent more than once; not compared, since upstream repeats some at random. */
  readonly repeated: readonly string[];
}

export interface Objects {
  readonly claims: Fields;
  readonly volumes: Fields;
  readonly snapshots: Fields;
  /** By class and topology. */
  readonly capacities: Fields;
}

export const NO_OBJECTS: Objects = { claims: {}, volumes: {}, snapshots: {}, capacities: {} };

/** The scenario's objects now. */
export function objectsOf(scene: Scene): Objects {
  const byName = (seen: readonly Seen[], only: readonly string[]): Fields =>
    Object.fromEntries(seen.map((object) => [object.metadata.name, essence(object, only)]));
  return normalise(scene, {
    claims: byName(scene.ownClaims(), ['spec', 'status']),
    volumes: byName(scene.volumes(), ['spec', 'status']),
    // The test itself writes status and spec of snapshots.
    snapshots: byName(scene.snapshots(), []),
    capacities: capacitiesOf(scene),
  }) as Objects;
}

/** The objects of each class and topology, without their names, which are random. */
function capacitiesOf(scene: Scene): Fields {
  const byPlace: Record<string, Fields[]> = {};
  for (const found of scene.capacities()) {
    const labels = Object.entries(found.nodeTopology?.matchLabels ?? {}).toSorted();
    (byPlace[`${found.storageClassName} ${JSON.stringify(labels)}`] ??= []).push({
      labels: found.metadata.labels ?? {},
      namespace: found.metadata.namespace,
      owners: found.metadata.ownerReferences ?? [],
      capacityBytes: bytesOf(found.capacity),
      maximumVolumeBytes: bytesOf(found.maximumVolumeSize),
    });
  }
  for (const objects of Object.values(byPlace))
    objects.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
  return byPlace;
}

/** The API server writes one number in several ways. */
function bytesOf(quantity: SeenCapacity['capacity']): string {
  return quantity === undefined ? 'absent' : String(parseQuantityBytes(quantity));
}

const METHODS: readonly RecordedMethod[] = ['CreateVolume', 'DeleteVolume', 'GetCapacity'];

export function callsOf(
  scene: Scene,
  ignored: readonly RecordedMethod[] = [],
): ScenarioRecord['calls'] {
  const byObject: Record<string, unknown[]> = {};
  for (const method of METHODS) {
    if (ignored.includes(method)) continue;
    for (const call of scene.calls(method)) {
      const requests = (byObject[normaliseText(scene, `${method} ${call.about}`)] ??= []);
      const request = normalise(scene, call.request);
      if (!requests.some((known) => JSON.stringify(known) === JSON.stringify(request)))
        requests.push(request);
    }
  }
  return byObject;
}

export function repeatedCallsOf(scene: Scene): readonly string[] {
  const all = ['CreateVolume', 'DeleteVolume'].flatMap((method) =>
    scene.calls(method).map((call) => `${method} ${call.about}`),
  );
  const repeated = all.filter((call, index) => all.indexOf(call) !== index);
  return [...new Set(repeated)].map((call) => normaliseText(scene, call));
}

/** What sutler says besides. */
const NEXT_STEP = /; when that is mended: sutler retry \S+$/;

export function eventsOf(scene: Scene): ScenarioRecord['events'] {
  const lines = scene
    .events()
    .map(
      ({ type, reason, message, involvedObject }) =>
        `${type} ${reason} ${involvedObject.kind} ${involvedObject.name}: ${message}`,
    )
    .filter((line) => !isConflict(line))
    .map((line) => unifyDeadline(normaliseText(scene, line.replace(NEXT_STEP, ''))));
  return Object.fromEntries([...new Set(lines)].sort().map((line) => [line, true as const]));
}

/** Replaces what differs in every run. */
function normalise(scene: Scene, value: unknown): unknown {
  return sorted(JSON.parse(normaliseText(scene, JSON.stringify(value))));
}

/** Whether the event is about a conflict of two writers, which occurs at random. */
function isConflict(line: string): boolean {
  return line.includes('the object has been modified');
}

/** Replaces the message of an expired deadline, which gRPC words in several ways at random. */
function unifyDeadline(line: string): string {
  return line.replace(/(rpc error: code = DeadlineExceeded desc = ).*/, '$1(a deadline)');
}

function essence(object: Seen, only: readonly string[]): Fields {
  const {
    name,
    finalizers = [],
    annotations = {},
    deletionTimestamp,
    ...metadata
  } = object.metadata as Seen['metadata'] & Fields;
  const more = object as Seen & Fields;
  return {
    metadata: {
      name,
      annotations,
      // Controllers of the cluster add theirs before or after ours, at random.
      finalizers: finalizers.toSorted(),
      labels: metadata['labels'] ?? {},
      isBeingDeleted: deletionTimestamp !== undefined,
    },
    ...Object.fromEntries(only.map((field) => [field, more[field] ?? {}])),
  };
}

const IDENTITY = /"storage\.kubernetes\.io\/csiProvisionerIdentity":"\d+-\d+-([^"]*)"/g;
const CHANGING_FIELDS = /"(resourceVersion|lastPhaseTransitionTime|lastTransitionTime)":"[^"]*"/g;

function normaliseText(scene: Scene, text: string): string {
  const { stage } = scene;
  let plain = text
    .replace(IDENTITY, '"storage.kubernetes.io/csiProvisionerIdentity":"(identity)-$1"')
    .replace(CHANGING_FIELDS, '"$1":"(changing)"');
  for (const [uid, owner] of stage.observer.uids) {
    plain = plain.replaceAll(uid, `(UID of ${owner})`);
    if (stage.uuidLength === -1) continue;
    const short = uid.replaceAll('-', '').slice(0, stage.uuidLength);
    plain = plain.replaceAll(short, `(${stage.uuidLength} digits of ${owner})`);
  }
  return plain.replaceAll(stage.driverName, '(driver)').replaceAll(stage.token, '(run)');
}

/** With the fields of objects in order, and the expressions of a node affinity, which upstream
 * writes in a random order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) {
    const items = value.map(sorted);
    return items.every(isExpression) ? items.toSorted(byKey) : items;
  }
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, field]) => [key, sorted(field)]),
  );
}

interface Expression {
  readonly key: string;
  readonly operator: string;
}

function isExpression(item: unknown): item is Expression {
  return typeof item === 'object' && item !== null && 'key' in item && 'operator' in item;
}

function byKey({ key: a }: Expression, { key: b }: Expression): number {
  return a < b ? -1 : 1;
}
