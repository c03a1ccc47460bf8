import type { MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { CreateSnapshotRequest, SnapshotSchema } from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { DriverStatus } from './driver-status.ts';
import type { OperationLocks } from './operation-locks.ts';
import type { StoredSnapshot, VolumeStore } from './volume-store.ts';

/** Implements the calls for snapshots. A snapshot outlives its volume and uses no capacity. */
export class SnapshotOperations {
  readonly #store: VolumeStore;
  readonly #locks: OperationLocks;
  readonly #clock: Clock;

  constructor(o: { store: VolumeStore; locks: OperationLocks; clock: Clock }) {
    this.#store = o.store;
    this.#locks = o.locks;
    this.#clock = o.clock;
  }

  async create(request: CreateSnapshotRequest): Promise<StoredSnapshot> {
    const { name, sourceVolumeId } = request;
    if (name === '') throw new DriverStatus(Code.InvalidArgument, 'no snapshot name given');
    if (sourceVolumeId === '')
      throw new DriverStatus(Code.InvalidArgument, 'no source volume id given');
    return (
      this.#findExisting(request) ??
      this.#locks.run(
        `snapshot name ${name}`,
        () => this.#findExisting(request) ?? this.#createSnapshot(request),
      )
    );
  }

  async delete(handle: string): Promise<void> {
    const { snapshots } = this.#store;
    if (handle === '') throw new DriverStatus(Code.InvalidArgument, 'no snapshot id given');
    if (snapshots.byHandle(handle) !== undefined)
      await this.#locks.run(`snapshot ${handle}`, () => snapshots.delete(handle));
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
   * @throws DriverStatus AlreadyExists if it is of another volume, Aborted during its deletion */
  #findExisting({ name, sourceVolumeId }: CreateSnapshotRequest): StoredSnapshot | undefined {
    const existing = this.#store.snapshots.byName(name);
    if (existing === undefined) return undefined;
    this.#locks.checkFree(`snapshot ${existing.handle}`);
    if (existing.sourceVolume === sourceVolumeId) return existing;
    const other = `snapshot ${name} exists, but it is of volume ${existing.sourceVolume}`;
    throw new DriverStatus(Code.AlreadyExists, other);
  }

  #createSnapshot({ name, sourceVolumeId: sourceVolume }: CreateSnapshotRequest): StoredSnapshot {
    const volume = this.#store.byHandle(sourceVolume);
    if (volume === undefined)
      throw new DriverStatus(Code.NotFound, `there is no volume ${sourceVolume}`);
    const { capacityBytes } = volume;
    const createdMs = this.#clock.nowMs();
    return this.#store.snapshots.create({ name, capacityBytes, sourceVolume, createdMs });
  }
}
