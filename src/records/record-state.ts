/** The state of a volume record, that is of what was asked of the driver for one volume. Without a
 * record nothing was asked, or it is proven that no volume exists: a creation or a deletion may be
 * opened. Only the owner of a record writes to it; an owner whose ownership has ended is replaced
 * by the run that opens the record next. */
export type RecordState =
  /** A CreateVolume was or is being sent, and the record has its request. Its owner leaves it, or
   * the run that replaces an owner: to `stored` when the PV is written, to `suspect` or no record
   * when the driver refuses, and to the state before the attempt when nothing was sent. */
  | 'creating'
  /** The driver refused, but an earlier call of unknown end may still create the volume. A run that
   * sends the request again leaves it, to `creating`. */
  | 'suspect'
  /** The PV is written. A run that reads the PV Released leaves it, to `deleting`; one that has to
   * send the creation again (record rule 5, or the PV was removed), to `creating`. While the record
   * is unambiguous it expires after a day. */
  | 'stored'
  /** A DeleteVolume was or is being sent. Its owner leaves it, or the run that replaces an owner:
   * to `gone` when the driver has deleted the volume or the PV has vanished, to `stored` when the
   * PV is to be kept, and to the state before the attempt when nothing was sent. */
  | 'deleting'
  /** The volume is deleted, and a creation for this id is refused. Expires after a day. */
  | 'gone';

export const RECORD_STATES = [
  'creating',
  'suspect',
  'stored',
  'deleting',
  'gone',
] as const satisfies readonly RecordState[];
