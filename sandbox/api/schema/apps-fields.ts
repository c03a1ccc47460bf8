import type { FieldTable } from './struct.ts';

/** Kinds of the group apps. */
export const appsFields: FieldTable = {
  StatefulSet: {
    metadata: 'ObjectMeta +',
    spec: 'StatefulSetSpec +',
    status: 'StatefulSetStatus +',
  },
  StatefulSetSpec: {
    replicas: 'int *',
    selector: 'LabelSelector !',
    template: 'PodTemplateSpec ! +',
    volumeClaimTemplates: 'PersistentVolumeClaim[]',
    serviceName: 'string',
    podManagementPolicy: 'string',
    updateStrategy: 'StatefulSetUpdateStrategy +',
    revisionHistoryLimit: 'int *',
    minReadySeconds: 'int',
    persistentVolumeClaimRetentionPolicy: 'ClaimRetentionPolicy',
    ordinals: 'StatefulSetOrdinals',
  },
  PodTemplateSpec: { metadata: 'ObjectMeta +', spec: 'PodSpec +' },
  StatefulSetUpdateStrategy: { type: 'string', rollingUpdate: 'RollingUpdateStrategy' },
  RollingUpdateStrategy: { partition: 'int *', maxUnavailable: 'any' },
  ClaimRetentionPolicy: { whenDeleted: 'string', whenScaled: 'string' },
  StatefulSetOrdinals: { start: 'int !' },
  StatefulSetStatus: {
    observedGeneration: 'int',
    replicas: 'int !',
    readyReplicas: 'int',
    currentReplicas: 'int',
    updatedReplicas: 'int',
    currentRevision: 'string',
    updateRevision: 'string',
    collisionCount: 'int *',
    conditions: 'Condition[] merge=type map=type',
    availableReplicas: 'int *',
  },
};
