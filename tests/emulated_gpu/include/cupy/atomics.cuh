// One thread runs at a time here, so nothing comes between.
#pragma once
template <typename T>
T atomicAdd(T* place, T value) {
    T before = *place;
    *place = before + value;
    return before;
}
