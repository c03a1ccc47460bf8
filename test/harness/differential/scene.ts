import assert from 'node:assert/strict';
import {
  at,
  type Connection,
  type Fields,
  type Reply,
  textAt,
} from '../../conformance/connection.ts';
import {
  CLASSES,
  VOLUMES,
  claim,
  paths,
  secret,
  storageClass,
  volume,
} from '../../conformance/objects.ts';
import type { Observer, Seen, SeenCapacity, SeenEvent } from './observer.ts';
import type { Scenario } from './scenario.ts';
import type { RecordedCall } from './scripted-driver.ts';

/** What all scenarios of a run share. */
export interface Stage {
  readonly api: Connection;
  readonly observer: Observer;
  readonly driverName: string;
  /** Part of every name in this run, and of no other name. */
  readonly token: string;
  /** Number of hex digits of the claim's UID in names of volumes; -1: the whole UID. */
  readonly uuidLength: number;
  /** UIDs of claims that belong to no scenario. */
  readonly markers: Set<string>;
  readonly calls: readonly RecordedCall[];
  readonly markerClass: string;
  readonly markerNamespace: string;
  /** Annotations of claims that belong to no scenario. */
  readonly markerAnnotations: Readonly<Record<string, string>>;
}

const TIMEOUT_MS = 90_000;
/** The sources of events that are not compared. */
const NOT_THE_PROVISIONER = new Set(['persistentvolume-controller', 'default-scheduler']);

/** One scenario with one provisioner. */
export class Scene {
  readonly scenario: Scenario;
  readonly stage: Stage;
  /** What else the scenario adds to the comparison. */
  readonly notes: Record<string, unknown> = {};
  /** What has happened so far, for answers of the driver that depend on that. */
  readonly happened = new Set<string>();
  /** Paths of further objects to delete after the run. */
  readonly others = new Set<string>();
  readonly namespace: string;
  /** A second namespace; a scenario that needs it creates it. */
  readonly otherNamespace: string;
  /** Name of the class and of the scenario's other cluster-wide objects. */
  readonly className: string;
  /** Part of every name of this scenario in this run, and of no other name. */
  readonly #mark: string;
  readonly #uids = new Set<string>();

  /** @param index of the scenario among those of the run */
  constructor(scenario: Scenario, stage: Stage, index: number) {
    this.scenario = scenario;
    this.stage = stage;
    this.#mark = `${stage.token}${String(index).padStart(3, '0')}`;
    this.namespace = `${scenario.name}-${this.#mark}`;
    this.otherNamespace = `${scenario.name}-other-${this.#mark}`;
    this.className = this.namespace;
  }

  get api(): Connection {
    return this.stage.api;
  }

  get driver(): string {
    return this.stage.driverName;
  }

  get claims(): string {
    return paths(this.namespace).claims;
  }

  async makeNamespace(name: string): Promise<void> {
    await this.create('/api/v1/namespaces', {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name },
    });
  }

  /** Creates an object and returns it as stored. */
  async create(path: string, object: Fields): Promise<Seen> {
    const reply = await this.api.call('POST', path, { body: object });
    assert.equal(reply.status, 201, `POST ${path}: ${reply.text}`);
    const stored = reply.body as Seen;
    const kind = textAt(object, 'kind');
    this.stage.observer.remember(kind, stored);
    if (kind === 'PersistentVolumeClaim' || kind === 'PersistentVolume')
      this.#uids.add(stored.metadata.uid);
    return stored;
  }

  makeClass(name: string, fields: Fields = {}): Promise<Seen> {
    return this.create(
      CLASSES,
      storageClass(name, { fields: { provisioner: this.driver, ...fields } }),
    );
  }

  makeClaim(name: string, spec: Fields = {}, metadata: Fields = {}): Promise<Seen> {
    return this.create(
      this.claims,
      claim(name, { metadata, spec: { storageClassName: this.className, ...spec } }),
    );
  }

  makeSecret(
    name: string,
    data: Readonly<Record<string, string>>,
    namespace = this.namespace,
  ): Promise<Seen> {
    return this.create(paths(namespace).secrets, secret(name, { fields: { stringData: data } }));
  }

  /** Creates a static volume of this driver; its name is the handle. */
  makeVolume(
    name: string,
    more: { readonly metadata?: Fields; readonly spec?: Fields } = {},
  ): Promise<Seen> {
    const csi = { driver: this.driver, volumeHandle: name };
    return this.create(VOLUMES, volume(name, { ...more, spec: { csi, ...more.spec } }));
  }

  async setStatus(path: string, status: Fields): Promise<void> {
    await this.patch(`${path}/status`, { status });
  }

  async patch(path: string, body: Fields): Promise<Reply> {
    const reply = await this.api.patch('merge', path, body);
    assert.equal(reply.status, 200, `PATCH ${path}: ${reply.text}`);
    return reply;
  }

  async remove(path: string): Promise<void> {
    const reply = await this.api.call('DELETE', path);
    assert.ok(reply.status < 300 || reply.status === 404, `DELETE ${path}: ${reply.text}`);
  }

  /** The claim as last read. */
  claim(name = 'data'): Seen | undefined {
    return this.ownClaims().find(({ metadata }) => metadata.name === name);
  }

  /** The volume whose claimRef names the claim. */
  volume(name = 'data'): Seen | undefined {
    const uid = this.uidOf(name);
    return this.volumes().find((found) => at(found.spec, 'claimRef', 'uid') === uid);
  }

  uidOf(name = 'data'): string | undefined {
    return (
      this.claim(name)?.metadata.uid ??
      [...this.#uids].find(
        (uid) => this.stage.observer.uids.get(uid) === `PersistentVolumeClaim ${name}`,
      )
    );
  }

  ownClaims(): readonly Seen[] {
    return this.stage.observer.objects.claims.filter(({ metadata }) =>
      this.#hasNamespace(metadata.namespace),
    );
  }

  volumes(): readonly Seen[] {
    return this.stage.observer.objects.volumes.filter(
      (found) =>
        this.isAbout(found.metadata.name) ||
        this.#hasNamespace(at(found.spec, 'claimRef', 'namespace')),
    );
  }

  /** Storage capacity of the scenario's classes, on the scenario's nodes or everywhere. */
  capacities(): readonly SeenCapacity[] {
    return this.stage.observer.objects.capacities.filter(
      ({ storageClassName, nodeTopology }) =>
        storageClassName.includes(this.#mark) &&
        Object.keys(nodeTopology?.matchLabels ?? {}).every((key) => key.includes(this.#mark)),
    );
  }

  snapshots(): readonly Seen[] {
    return this.stage.observer.objects.snapshots.filter(({ metadata }) =>
      this.#hasNamespace(metadata.namespace),
    );
  }

  /** The provisioner's events about the scenario's objects. */
  events(): readonly SeenEvent[] {
    return this.stage.observer.objects.events.filter(
      ({ involvedObject, reportingComponent, source }) => {
        if (NOT_THE_PROVISIONER.has(source?.component ?? reportingComponent ?? '')) return false;
        return involvedObject.kind === 'PersistentVolume'
          ? this.isAbout(involvedObject.name)
          : this.#hasNamespace(involvedObject.namespace);
      },
    );
  }

  hasEvent(reason: string, text = ''): boolean {
    return this.events().some((found) => found.reason === reason && found.message.includes(text));
  }

  calls(method: string): readonly RecordedCall[] {
    return this.stage.calls.filter((call) => call.method === method && this.isAbout(call.about));
  }

  /** Whether a name or handle belongs to this scenario: it contains the scenario's mark, or the UID
   * of one of its claims. */
  isAbout(text: string): boolean {
    if (text.includes(this.#mark)) return true;
    for (const { metadata } of this.ownClaims()) this.#uids.add(metadata.uid);
    return isOneOf(text, this.#uids, this.stage.uuidLength);
  }

  /** Waits until a condition is met. */
  async until(what: string, isMet: () => boolean | Promise<boolean>): Promise<void> {
    const deadlineMs = Date.now() + TIMEOUT_MS;
    await this.stage.observer.next();
    while (!(await isMet())) {
      if (Date.now() > deadlineMs) throw new Error(`not within ${TIMEOUT_MS} ms: ${what}`);
      await this.stage.observer.next();
    }
  }

  untilBound(name = 'data'): Promise<void> {
    return this.until(`${name} is Bound`, () => this.claim(name)?.status?.phase === 'Bound');
  }

  /** Creates a claim of a plain class and waits until it is Bound: then the provisioner has seen
   * what was created before. */
  async marker(): Promise<void> {
    const name = `after-${this.scenario.name}-${Date.now()}`;
    const path = paths(this.stage.markerNamespace).claims;
    const body = claim(name, {
      metadata: { annotations: this.stage.markerAnnotations },
      spec: { storageClassName: this.stage.markerClass },
    });
    const reply = await this.api.call('POST', path, { body });
    assert.equal(reply.status, 201, reply.text);
    this.stage.markers.add(textAt(reply.body, 'metadata', 'uid'));
    const isBound = (found: Seen): boolean =>
      found.metadata.namespace === this.stage.markerNamespace &&
      found.metadata.name === name &&
      found.status?.phase === 'Bound';
    await this.until('a claim that was created afterwards is Bound', () =>
      this.stage.observer.objects.claims.some(isBound),
    );
  }

  /** Deletes the claim and waits until it is gone, with every volume of the scenario. */
  async deleteAll(): Promise<void> {
    for (const { metadata } of this.ownClaims())
      await this.remove(`${paths(metadata.namespace ?? '').claims}/${metadata.name}`);
    await this.until(
      'claims and volumes are gone',
      () => this.ownClaims().length === 0 && this.volumes().length === 0,
    );
  }

  #hasNamespace(namespace: unknown): boolean {
    return namespace === this.namespace || namespace === this.otherNamespace;
  }
}

/** Whether a name or handle contains one of the UIDs, shortened as in names of volumes. */
export function isOneOf(text: string, uids: ReadonlySet<string>, uuidLength: number): boolean {
  return [...uids].some((uid) =>
    text.includes(uuidLength === -1 ? uid : uid.replaceAll('-', '').slice(0, uuidLength)),
  );
}
