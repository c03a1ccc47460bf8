import type { VolumeRequest } from '#src/records/stored-request.ts';
import type { TemplateSource, VolumeAnswer } from '#src/volumes/persistent-volume.ts';

/** A small request like those that a plan produces, for tests of the volume records. */
export function plannedRequest(
  o: Partial<VolumeRequest> & { readonly source?: TemplateSource } = {},
): VolumeRequest {
  const { source, ...changes } = o;
  return {
    request: Buffer.from('request'),
    pvTemplate: {
      requestedBytes: '0',
      identity: '',
      volume: {
        apiVersion: 'v1',
        kind: 'PersistentVolume',
        metadata: { name: 'pvc-u1' },
        spec: { csi: { driver: 'd.example', volumeHandle: '' } },
      },
      ...(source === undefined ? {} : { source }),
    },
    secret: undefined,
    endpoint: 'unix:///planned',
    ...changes,
  };
}

/** The driver's answer with this handle, in the form that the record stores. */
export function volumeAnswer(handle: string): VolumeAnswer {
  return { handle, context: {}, capacityBytes: '0', topology: [] };
}
