import type { MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type {
  CreateSnapshotRequest,
  ListSnapshotsRequest,
  SnapshotSchema,
} from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { copyContents } from './contents.ts';
import { DriverStatus } from './driver-status.ts';
import type { OperationLocks } from './operation-locks.ts';
import { type Page, pageOf } from './page.ts';
import { REQUIRE_SECRET_PARAMETER, requireSecret } from './secrets.ts';
import type { StoredSnapshot, VolumeStore } from './volume-store.ts';

export interface SnapshotRules {
  readonly store: VolumeStore;
  readonly locks: OperationLocks;
  readonly clock: Clock;
}

/** Implements the calls for snapshots. A snapshot is a full copy that outlives its volume and does
 * not use capacity of the pool. */
export class SnapshotOperations {
  readonly #rules: SnapshotRules;

  constructor(rules: SnapshotRules) {
    this.#rules = rules;
  }

  async create(request: CreateSnapshotRequest): Promise<StoredSnapshot> {
    if (request.name === '') throw new DriverStatus(Code.InvalidArgument, 'no snapshot name given');
    if (request.sourceVolumeId === '')
      throw new DriverStatus(Code.InvalidArgument, 'no source volume id given');
    const secretKey = request.parameters[REQUIRE_SECRET_PARAMETER] ?? '';
    requireSecret(secretKey, request.secrets);
    const existing = this.#findExisting(request);
    return (
      existing ??
      this.#rules.locks.run(
        `snapshot name ${request.name}`,
        () => this.#findExisting(request) ?? this.#createSnapshot(request, secretKey),
      )
    );
  }

  async delete(handle: string, secrets: Readonly<Record<string, string>>): Promise<void> {
    const { store, locks } = this.#rules;
    if (handle === '') throw new DriverStatus(Code.InvalidArgument, 'no snapshot id given');
    const snapshot = store.snapshots.byHandle(handle);
    if (snapshot === undefined) return;
    requireSecret(snapshot.secretKey, secrets);
    await locks.run(`snapshot ${handle}`, () => store.snapshots.delete(handle));
  }

  /** All snapshots, those of one volume, or one. An unknown ID gives an empty page. */
  list({ snapshotId, sourceVolumeId, ...where }: ListSnapshotsRequest): Page<StoredSnapshot> {
    const matching = this.#rules.store.snapshots
      .list()
      .filter(({ handle }) => snapshotId === '' || handle === snapshotId)
      .filter(({ sourceVolume }) => sourceVolumeId === '' || sourceVolume === sourceVolumeId);
    return pageOf(matching, where, 'snap-');
  }

  /** The snapshot as a message for answers. */
  toMessage(snapshot: StoredSnapshot): MessageInitShape<typeof SnapshotSchema> {
    return {
      snapshotId: snapshot.handle,
      sourceVolumeId: snapshot.sourceVolume,
      sizeBytes: snapshot.capacityBytes,
      creationTime: timestampFromMs(snapshot.createdMs),
      readyToUse: true,
    };
  }

  /** The snapshot that an earlier call with this name created.
   * @throws DriverStatus AlreadyExists if it is of another volume, Aborted while it is being
   *   deleted */
  #findExisting({ name, sourceVolumeId }: CreateSnapshotRequest): StoredSnapshot | undefined {
    const { store, locks } = this.#rules;
    const existing = store.snapshots.byName(name);
    if (existing === undefined) return undefined;
    locks.checkFree(`snapshot ${existing.handle}`);
    if (existing.sourceVolume === sourceVolumeId) return existing;
    throw new DriverStatus(
      Code.AlreadyExists,
      `snapshot ${name} exists, but it is of volume ${existing.sourceVolume}`,
    );
  }

  #createSnapshot(
    { name, sourceVolumeId }: CreateSnapshotRequest,
    secretKey: string,
  ): StoredSnapshot {
    const { store, clock } = this.#rules;
    const volume = store.byHandle(sourceVolumeId);
    if (volume === undefined)
      throw new DriverStatus(
        Code.NotFound,
        `cannot create a snapshot: there is no volume ${sourceVolumeId}`,
      );
    const { capacityBytes, accessType } = volume;
    return store.snapshots.create(
      {
        name,
        capacityBytes,
        accessType,
        secretKey,
        sourceVolume: sourceVolumeId,
        createdMs: clock.nowMs(),
      },
      (directory) => copyContents(store.directory(sourceVolumeId), directory),
    );
  }
}
