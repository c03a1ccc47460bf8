import {
  BETA_STORAGE_PROVISIONER,
  PROVISIONED_BY,
  STORAGE_PROVISIONER,
  VOLUME_FINALIZER,
} from '#src/kube/keys.ts';
import type { Claim, Class, Volume } from '#src/kube/objects.ts';

export const DRIVER = 'd.example';
const PLURALS = ['storageclasses', 'persistentvolumeclaims', 'persistentvolumes'] as const;
export type Plural = (typeof PLURALS)[number];
type ModelObject = Claim | Class | Volume;

/** What a user, the volume controller or a driver does. An act on an object that is not there, or
 * that makes no sense for it, does nothing. */
export interface Act {
  readonly what: (typeof ACTS)[number];
  /** Which claim, class or volume. */
  readonly index: number;
  /** Which class of a claim, claim of a volume, or handle of a volume without claim. */
  readonly other: number;
}

export const ACTS = [
  'create-class',
  'create-foreign-class',
  'delete-class',
  'create-claim',
  'ask-for-volume',
  'touch-claim',
  'bind-claim',
  'delete-claim',
  'create-volume',
  'create-static-volume',
  'touch-volume',
  'release-volume',
  'retain-volume',
  'terminate-volume',
  'delete-volume',
] as const;

/** One write of the model, as a watch reports it. */
export interface ModelChange {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly plural: Plural;
  readonly object: ModelObject;
  readonly revision: number;
}

/** Kind and version of each resource. */
const KINDS: Readonly<Record<Plural, object>> = {
  storageclasses: { kind: 'StorageClass', apiVersion: 'storage.k8s.io/v1' },
  persistentvolumeclaims: { kind: 'PersistentVolumeClaim', apiVersion: 'v1' },
  persistentvolumes: { kind: 'PersistentVolume', apiVersion: 'v1' },
};

/** A cluster's classes, claims and volumes with their history, and which of them need a job. */
export class ClusterModel {
  readonly history: ModelChange[] = [];
  #revision = 100;
  #uids = 0;
  readonly #objects: Readonly<Record<Plural, Map<string, ModelObject>>> = {
    storageclasses: new Map(),
    persistentvolumeclaims: new Map(),
    persistentvolumes: new Map(),
  };

  get revision(): number {
    return this.#revision;
  }

  /** Advances the version without a change, as writes of other kinds do. */
  advance(): void {
    this.#revision += 1;
  }

  /** The objects as they were at a version. */
  objectsAt(plural: Plural, revision: number): readonly ModelObject[] {
    const objects = new Map<string, ModelObject>();
    for (const { type, plural: changed, object, revision: at } of this.history) {
      if (changed !== plural || at > revision) continue;
      if (type === 'DELETED') objects.delete(object.metadata.name);
      else objects.set(object.metadata.name, object);
    }
    return [...objects.values()];
  }

  changesAfter(plural: Plural, revision: number): readonly ModelChange[] {
    return this.history.filter((each) => each.plural === plural && each.revision > revision);
  }

  /** @returns the change; undefined if the act does nothing */
  apply(act: Act): ModelChange | undefined {
    return this.#acts[act.what](act);
  }

  readonly #acts: Readonly<Record<Act['what'], (act: Act) => ModelChange | undefined>> = {
    'create-class': ({ index }) =>
      this.#create('storageclasses', `class-${index}`, { provisioner: DRIVER }),
    'create-foreign-class': ({ index }) =>
      this.#create('storageclasses', `class-${index}`, { provisioner: 'other.example' }),
    'delete-class': ({ index }) => this.#delete('storageclasses', `class-${index}`),
    'create-claim': ({ index, other }) =>
      this.#create('persistentvolumeclaims', `claim-${index}`, {
        spec: { storageClassName: `class-${other}`, accessModes: ['ReadWriteOnce'] },
        status: { phase: 'Pending' },
      }),
    'ask-for-volume': ({ index }) =>
      this.#annotate(this.#claim(index), {
        [STORAGE_PROVISIONER]: DRIVER,
        [BETA_STORAGE_PROVISIONER]: DRIVER,
      }),
    'touch-claim': ({ index }) => this.#touch(this.#claim(index)),
    'bind-claim': ({ index, other }) =>
      this.#change(this.#claim(index), ({ spec }) => ({
        spec: { ...spec, volumeName: `volume-${other}` },
        status: { phase: 'Bound' },
      })),
    'delete-claim': ({ index }) => this.#delete('persistentvolumeclaims', `claim-${index}`),
    'create-volume': ({ other }) => {
      const uid = this.#claim(other)?.metadata.uid;
      return uid === undefined
        ? undefined
        : this.#createVolume(`pvc-${uid}`, `handle-of-${uid}`, { claimRef: { uid } });
    },
    'create-static-volume': ({ index, other }) =>
      this.#createVolume(`volume-${index}`, `handle-${other}`, {}),
    'touch-volume': ({ index }) => this.#touch(this.#volume(index)),
    'release-volume': ({ index }) =>
      this.#change(this.#volume(index), () => ({ status: { phase: 'Released' } })),
    'retain-volume': ({ index }) =>
      this.#change(this.#volume(index), ({ spec }) => ({
        spec: { ...spec, persistentVolumeReclaimPolicy: 'Retain' },
      })),
    'terminate-volume': ({ index }) =>
      this.#change(this.#volume(index), ({ metadata }) => ({
        metadata: { ...metadata, deletionTimestamp: '2026-01-01T00:00:00Z' },
      })),
    'delete-volume': ({ index }) =>
      this.#delete('persistentvolumes', this.#volume(index)?.metadata.name ?? ''),
  };

  /** The keys of all objects that need a job, as `KIND UID`, in order. */
  get needed(): readonly string[] {
    const claims = [...this.#objects.persistentvolumeclaims.values()] as Claim[];
    const volumes = [...this.#objects.persistentvolumes.values()] as Volume[];
    return [
      ...claims
        .filter((claim) => this.#claimNeedsJob(claim, volumes))
        .map(({ metadata }) => `claim ${metadata.uid}`),
      ...volumes
        .filter((volume) => volumeNeedsJob(volume, volumes))
        .map(({ metadata }) => `volume ${metadata.uid}`),
    ].toSorted();
  }

  #claimNeedsJob({ metadata, spec }: Claim, volumes: readonly Volume[]): boolean {
    const found = this.#objects.storageclasses.get(spec.storageClassName ?? '') as
      Class | undefined;
    return (
      metadata.annotations?.[STORAGE_PROVISIONER] === DRIVER &&
      (spec.volumeName ?? '') === '' &&
      found?.provisioner === DRIVER &&
      !volumes.some((volume) => volume.metadata.name === `pvc-${metadata.uid}`)
    );
  }

  #createVolume(name: string, handle: string, more: object): ModelChange | undefined {
    return this.#create('persistentvolumes', name, {
      spec: {
        persistentVolumeReclaimPolicy: 'Delete',
        csi: { driver: DRIVER, volumeHandle: handle },
        ...more,
      },
      status: { phase: 'Available' },
    });
  }

  #claim(index: number): Claim | undefined {
    return this.#objects.persistentvolumeclaims.get(`claim-${index}`) as Claim | undefined;
  }

  #volume(index: number): Volume | undefined {
    return [...this.#objects.persistentvolumes.values()][index] as Volume | undefined;
  }

  #create(plural: Plural, name: string, fields: object): ModelChange | undefined {
    if (this.#objects[plural].has(name)) return undefined;
    this.#uids += 1;
    const metadata = {
      name,
      uid: `uid-${this.#uids}`,
      ...(plural === 'persistentvolumeclaims' ? { namespace: 'default' } : {}),
      ...(plural === 'persistentvolumes'
        ? { finalizers: [VOLUME_FINALIZER], annotations: { [PROVISIONED_BY]: DRIVER } }
        : {}),
    };
    return this.#store('ADDED', plural, { ...KINDS[plural], metadata, ...fields });
  }

  #touch(object: Claim | Volume | undefined): ModelChange | undefined {
    return this.#annotate(object, { 'example.com/touched': String(this.#revision) });
  }

  #annotate(
    object: Claim | Volume | undefined,
    annotations: Readonly<Record<string, string>>,
  ): ModelChange | undefined {
    return this.#change(object, ({ metadata }) => ({
      metadata: { ...metadata, annotations: { ...metadata.annotations, ...annotations } },
    }));
  }

  #change<T extends Claim | Volume>(
    object: T | undefined,
    change: (object: T) => object,
  ): ModelChange | undefined {
    if (object === undefined) return undefined;
    const plural =
      object.metadata.namespace === undefined ? 'persistentvolumes' : 'persistentvolumeclaims';
    return this.#store('MODIFIED', plural, { ...object, ...change(object) });
  }

  #delete(plural: Plural, name: string): ModelChange | undefined {
    const object = this.#objects[plural].get(name);
    return object && this.#store('DELETED', plural, object);
  }

  #store(type: ModelChange['type'], plural: Plural, fields: object): ModelChange {
    this.#revision += 1;
    const given = fields as ModelObject;
    const metadata = { ...given.metadata, resourceVersion: String(this.#revision) };
    const object = { ...given, metadata } as ModelObject;
    if (type === 'DELETED') this.#objects[plural].delete(metadata.name);
    else this.#objects[plural].set(metadata.name, object);
    const change = { type, plural, object, revision: this.#revision };
    this.history.push(change);
    return change;
  }
}

/** A volume to be deleted, if no other one has its handle; or one that is kept from now on and
 * still has sutler's finalizer. */
function volumeNeedsJob({ metadata, spec, status }: Volume, all: readonly Volume[]): boolean {
  if (spec.persistentVolumeReclaimPolicy === 'Retain') return true;
  const isShared = all.some(
    (other) =>
      other.metadata.uid !== metadata.uid &&
      other.spec.csi?.volumeHandle === spec.csi?.volumeHandle,
  );
  return status?.phase === 'Released' && !isShared;
}
