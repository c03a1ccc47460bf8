/* The states of a volume record, that is of what was asked of the driver for one volume. Without a
 * record nothing was asked, or it is proven that no volume exists: a creation or a deletion may be
 * opened. Only the owner of a record writes to it. An owner whose ownership has ended is replaced
 * by the run that opens the record next. */
export const RECORD_STATES = [
  /** A CreateVolume was or is being sent, and the record has its request. The owner changes the
   * state: to `stored` when the PV is written, to `suspect` or no record when the driver refuses,
   * and to the state before the attempt when nothing was sent. */
  'creating',
  /** The driver refused, but an earlier call of unknown end may still create the volume. A run that
   * sends the request again changes the state to `creating`. */
  'suspect',
  /** The PV is written. A run that reads the PV Released changes the state to `deleting`. One that
   * has to send the creation again (record rule 5, or the PV was removed) changes it to `creating`.
   * An unambiguous record expires after a day. */
  'stored',
  /** A DeleteVolume was or is being sent. The owner changes the state: to `gone` when the driver
   * has deleted the volume or the PV has vanished, to `stored` when the PV is to be kept, and to
   * the state before the attempt when nothing was sent. */
  'deleting',
  /** The volume is deleted, and a creation for this id is refused until no call that was begun
   * before can arrive any more: for an ownership and the settle time. Expires after a day. */
  'gone',
] as const;

export type RecordState = (typeof RECORD_STATES)[number];
